"""SiP-Khop: a line of GPUs whose transceivers switch to the 1st, 2nd, ... k-th neighbour (InfiniteHBD)."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError, PluginError, shown
from sipml_core.fields import at_least, between, int64_vector, option, parse_gbps, parse_us, positive
from sipml_core.model import (
    MAX_GPUS,
    NO_LINK,
    CircuitControl,
    CircuitPlan,
    Cluster,
    Fabric,
    FabricHints,
    FabricWords,
    PairArray,
    PairIndex,
    Routes,
    TrafficMatrix,
    check_form,
)
from sipml_core.plugin import Scheduler, Topology
from sipml_photonic.parts import check_times, interval, optional_us
from sipml_photonic.waiting import Waiting


@attrs.frozen(kw_only=True, eq=False)
class KhopCircuits(CircuitControl):
    """Two transceivers a GPU, up and down the ring of slots, each switched to one of its next k slots.

    A circuit joins the upward transceiver of one GPU to the downward one of another, in both directions
    of light, so either transceiver has one partner at a time.
    """

    reach: int
    #: Slots of the ring, dead ones among them, and the slot of each GPU. [gpus]
    slots: int
    slot: NDArray[np.int64] = attrs.field(converter=int64_vector)

    def ahead(self, src: NDArray[np.int32], dst: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the slots from each source up to its destination, negative where down is shorter. [pairs]

        Of two that are opposite, the one of the lower slot looks up.
        """
        apart = self.slot[dst] - self.slot[src]
        up = apart % self.slots
        looks_up = (2 * up < self.slots) | ((2 * up == self.slots) & (apart > 0))
        return np.where(looks_up, up, up - self.slots)

    def may_connect(self, src: NDArray[np.int32], dst: NDArray[np.int32]) -> NDArray[np.bool_]:
        ahead = self.ahead(np.asarray(src), np.asarray(dst))
        return np.asarray((ahead != 0) & (np.abs(ahead) <= self.reach))

    def contested(
        self, gpus: NDArray[np.int32], src: NDArray[np.int32], dst: NDArray[np.int32]
    ) -> NDArray[np.int64]:
        """Return nothing: transceivers belong to their GPUs, and each has fibres of its own."""
        return np.empty(0, np.int64)

    def check(self, plan: CircuitPlan) -> None:
        """Refuse a transceiver with two partners, and more than one circuit between two."""
        check_form(self, plan)
        lit = plan.gbps > 0
        if (plan.gbps > self.circuit_gbps * (1 + 1e-9)).any():
            raise PluginError("the plan gives a pair more than the one circuit of a transceiver")
        ahead = self.ahead(plan.src, plan.dst)
        partner: dict[tuple[int, bool], int] = {}
        for a, b, up in zip(
            plan.src[lit].tolist(), plan.dst[lit].tolist(), (ahead[lit] > 0).tolist(), strict=True
        ):
            for end, other, way in ((a, b, up), (b, a, not up)):
                if partner.setdefault((end, way), other) != other:
                    raise PluginError(
                        f"the plan joins one transceiver of GPU {end} to GPUs {partner[end, way]} and {other}"
                    )


@attrs.frozen(kw_only=True, eq=False)
class KhopPlan(CircuitPlan):
    """Partners of transceivers, and the pairs of GPUs, the lower slot first, that wait for one."""

    waiting: Waiting


class KhopMatching(Scheduler):
    """Partners for transceivers: the pairs that have waited most plans first, of these the largest demands.

    If every GPU talks to one GPU up the ring and to one down, all pairs are served, and no plan is better.
    Otherwise a pair that is served carries at least as much as each of those that kept others out, or has
    waited longer. So nobody waits for ever, whatever stands behind it in its sender's queue.
    """

    name = "khop-matching"
    summary = "partners for switched transceivers, who waited longest first, then the largest demands"
    plans = KhopCircuits

    def plan(
        self, control: CircuitControl, traffic: TrafficMatrix, previous: CircuitPlan | None
    ) -> CircuitPlan:
        assert isinstance(control, KhopCircuits)  # `plans` says so
        ahead = control.ahead(traffic.src, traffic.dst)
        low = np.where(ahead > 0, traffic.src, traffic.dst)
        high = np.where(ahead > 0, traffic.dst, traffic.src)
        key, where = np.unique(PairIndex(control.gpus).key(low, high), return_inverse=True)
        demand = np.bincount(where.reshape(-1), weights=traffic.demand, minlength=len(key))
        low, high = PairIndex(control.gpus).ends(key)

        before = previous.waiting if isinstance(previous, KhopPlan) else Waiting()

        up_free, down_free = np.ones(control.gpus, bool), np.ones(control.gpus, bool)
        lit, served = [], np.zeros(len(key), bool)
        for k in np.lexsort((key, -demand, -before.of(key))):
            a, b = int(low[k]), int(high[k])
            if up_free[a] and down_free[b]:
                up_free[a] = down_free[b] = False
                served[k] = True
                lit += [(a, b), (b, a)]
        pairs = np.array(sorted(lit), np.int32).reshape(-1, 2)
        return KhopPlan(
            gpus=control.gpus,
            src=pairs[:, 0],
            dst=pairs[:, 1],
            gbps=np.full(len(pairs), control.circuit_gbps),
            waiting=before.after(key, served),
        )


def _dead(value: Any) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise ConfigError(f"must be a list of slots such as [3, 17], got {shown(value)}")
    return tuple(value)


def _slots(_: Any, attribute: attrs.Attribute[Any], value: tuple[Any, ...]) -> None:
    for slot in value:
        if isinstance(slot, bool) or not isinstance(slot, int) or not 0 <= slot < 2 * MAX_GPUS:
            raise ConfigError(f"{attribute.name} must name slots from 0, got {shown(slot)}")
    if len(set(value)) < len(value):
        raise ConfigError(f"{attribute.name} names slot {next(s for s in value if value.count(s) > 1)} twice")


@attrs.frozen(kw_only=True)
class SipKhopOptions:
    reach: int = option(
        3, doc="slots that a transceiver can be switched to, k", validator=between(1, MAX_GPUS)
    )
    dead: tuple[int, ...] = option(
        (), doc="slots whose GPUs have failed; there are as many slots as GPUs and dead ones",
        converter=_dead, validator=_slots,
    )  # fmt: skip
    card_gbps: float | None = option(
        None, unit="Gbps",
        doc="card of each GPU into an ideal packet network, for pairs without a circuit; left out: none",
        converter=attrs.converters.optional(parse_gbps), validator=attrs.validators.optional(positive),
    )  # fmt: skip
    interval_us: float | None = interval()
    #: 60 to 80 us: the transceiver of InfiniteHBD.
    reconfiguration_us: float | None = optional_us(
        "time a changed circuit is dark; left out: 80", at_least(0)
    )
    latency_us: float = option(
        0.0, doc="time a byte takes through a circuit", unit="us", converter=parse_us, validator=at_least(0)
    )

    def __attrs_post_init__(self) -> None:
        check_times(self.interval_us, self.reconfiguration_us, 80.0)


class SipKhop(Topology):
    """Two circuits of B / 2 a GPU, up and down; other pairs go by the cards, or have no route.

    Links 0 .. N-1 are what each GPU sends on, N .. 2N-1 what each receives on; then cards out and in.
    """

    name = "sip-khop"
    summary = "a line of GPUs with switched transceivers to the next k neighbours each way, past dead ones"
    scheduler = "khop-matching"
    Options = SipKhopOptions

    def build(self, cluster: Cluster) -> Fabric:
        options, gpus = self.options, cluster.gpus
        slots = gpus + len(options.dead)
        beyond = [slot for slot in options.dead if slot >= slots]
        if beyond:
            raise ConfigError(
                f"dead names slot {beyond[0]}, but {gpus} GPUs and {len(options.dead)} dead ones have slots "
                f"0 to {slots - 1}"
            )
        slot = np.setdiff1d(np.arange(slots), options.dead)
        card_gbps = options.card_gbps

        def by_card(src: PairArray, dst: PairArray) -> Routes:
            out, into = np.asarray(src, np.int64), np.asarray(dst, np.int64)
            links = np.column_stack([out, 2 * gpus + out, 3 * gpus + into, gpus + into])
            return Routes(links=links, latency_us=np.zeros(len(links)))

        control = KhopCircuits(
            gpus=gpus,
            circuit_gbps=cluster.bandwidth_gbps / 2,
            circuits_per_gpu=2,
            interval_us=options.interval_us,
            reconfiguration_us=80.0 if options.reconfiguration_us is None else options.reconfiguration_us,
            packets=by_card if card_gbps else None,
            reach=options.reach,
            slots=slots,
            slot=slot,
        )
        fixed = (4 if card_gbps else 2) * gpus

        def route(src: PairArray, dst: PairArray) -> Routes:
            src, dst = np.asarray(src, np.int64), np.asarray(dst, np.int64)
            near = control.may_connect(src, dst)[:, None]
            circuit = fixed + PairIndex(gpus).key(src, dst)
            links = np.column_stack([src, circuit, gpus + dst, np.full(len(src), NO_LINK)])
            far = by_card(src, dst).links if card_gbps else np.full_like(links, NO_LINK)
            return Routes(links=np.where(near, links, far), latency_us=near[:, 0] * options.latency_us)

        gpu, core = np.arange(gpus), np.full(gpus, gpus)
        names = ("egress {}", "ingress {}", "card of {} out", "card of {} in")
        return Fabric(
            gpus=gpus,
            link_gbps=np.r_[
                np.full(2 * gpus, cluster.bandwidth_gbps), np.full(fixed - 2 * gpus, card_gbps or 1.0)
            ],
            link_tail=np.r_[gpu, gpu, gpu, core][:fixed],
            link_head=np.r_[gpu, gpu, core, gpu][:fixed],
            route=route,
            circuits=control,
            hints=FabricHints() if card_gbps else _hints(control),
            words=FabricWords(link_names=lambda k: names[k // gpus].format(k % gpus), notes=_notes(control)),
        )


def _gaps(control: KhopCircuits) -> NDArray[np.int64]:
    """Return the slots from each GPU up to the next one. [gpus]"""
    return (np.roll(control.slot, -1) - control.slot - 1) % control.slots + 1


def _notes(control: KhopCircuits) -> tuple[str, ...]:
    cut = np.flatnonzero(_gaps(control) > control.reach)
    return tuple(
        f"no circuit passes from GPU {k} to GPU {(k + 1) % control.gpus}: "
        f"{_gaps(control)[k] - 1} dead slots lie between"
        for k in cut[:3].tolist()
    )


def _hints(control: KhopCircuits) -> FabricHints:
    """Return the degree, and the distance in GPUs within which all pairs reach each other."""
    gpu = np.arange(control.gpus, dtype=np.int32)
    most = min(control.reach, control.gpus - 1)
    safe = [
        step
        for step in range(1, most + 1)
        if control.may_connect(gpu, np.asarray((gpu + step) % control.gpus, np.int32)).all()
    ]
    reach = max((step for step in safe if set(range(1, step + 1)) <= set(safe)), default=None)
    return FabricHints(degree=min(2, max(control.gpus - 1, 1)), reach_hops=reach)
