"""SiP-OCS as a Clos network: each large optical switch is made of small ones in three stages."""

from __future__ import annotations

import heapq

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError, PluginError
from sipml_core.fields import at_least, between, option, parse_us
from sipml_core.model import (
    MAX_GPUS,
    CircuitControl,
    CircuitPlan,
    Cluster,
    Fabric,
    FabricHints,
    TrafficMatrix,
    check_form,
)
from sipml_core.plugin import Scheduler, Topology
from sipml_core.scheduling import port_bound
from sipml_photonic.parts import check_times, interval, optional_us
from sipml_photonic.waiting import Waiting


@attrs.frozen(kw_only=True, eq=False)
class ClosCircuits(CircuitControl):
    """Q switches of N ports, each of three stages: every n inputs on a switch with m links to m middle ones.

    A set of circuits exists if and only if no GPU starts, or ends, more than Q, and no group of n GPUs more
    than Q m. For the limits of GPUs lie inside those of their groups, so circuits can be dealt out to the Q
    switches with at most 1 of a GPU and m of a group in each (de Werra 1971), and there m middle switches
    carry what m links bring (Slepian 1952, Duguid 1959).
    """

    #: GPUs on one switch of the first stage, n, and its links to middle switches, m.
    group_gpus: int
    uplinks: int

    def counters(self, src: NDArray[np.int32], dst: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return what a circuit of each pair counts on: a GPU and its group at either end. [pairs, 4]"""
        one: NDArray[np.int64] = np.asarray(src, np.int64)
        other: NDArray[np.int64] = np.asarray(dst, np.int64)
        groups = -(-self.gpus // self.group_gpus)
        out, into = 2 * self.gpus + one // self.group_gpus, 2 * self.gpus + groups + other // self.group_gpus
        return np.asarray(np.stack([one, self.gpus + other, out, into], axis=1), np.int64)

    @property
    def limits(self) -> NDArray[np.int64]:
        """Return how many circuits may count on each counter. [counters]"""
        groups = -(-self.gpus // self.group_gpus)
        edge = self.circuits_per_gpu * self.uplinks
        return np.r_[np.full(2 * self.gpus, self.circuits_per_gpu), np.full(2 * groups, edge)]

    def contested(
        self, gpus: NDArray[np.int32], src: NDArray[np.int32], dst: NDArray[np.int32]
    ) -> NDArray[np.int64]:
        """Return the groups whose links to middle switches circuits use, at either end.

        Nothing where every GPU of a group has a link of its own to each switch.
        """
        if self.uplinks >= self.group_gpus:
            return np.empty(0, np.int64)
        return np.unique(self.counters(src, dst)[:, 2:])

    def divided(self, parts: int) -> ClosCircuits | None:
        """Return the same with a part of the links to middle switches."""
        links = self.uplinks // parts
        return attrs.evolve(self, uplinks=links) if links else None

    def check(self, plan: CircuitPlan) -> None:
        """Refuse more circuits than ports, or than links between edge and middle switches."""
        check_form(self, plan)
        circuits = np.rint(plan.gbps / self.circuit_gbps)
        used = _used(self.counters(plan.src, plan.dst), circuits, len(self.limits))
        over = np.flatnonzero(used > self.limits)
        if len(over):
            k, groups = int(over[0]), -(-self.gpus // self.group_gpus)
            what = (
                f"GPU {k % self.gpus}" if k < 2 * self.gpus
                else f"the switches of group {(k - 2 * self.gpus) % groups}"
            )  # fmt: skip
            raise PluginError(f"the plan has {used[k]:g} circuits at {what}, which has {self.limits[k]}")


def _used(counters: NDArray[np.int64], circuits: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Return the circuits on each counter. [counters]

    >>> _used(np.array([[0, 2], [0, 1]]), np.array([3.0, 1.0]), 3).tolist()
    [4.0, 1.0, 3.0]
    """
    each = np.repeat(circuits, counters.shape[1])
    return np.asarray(np.bincount(counters.ravel(), weights=each, minlength=count), np.float64)


def max_min_circuits(
    demand: NDArray[np.float64],
    counters: NDArray[np.int64],
    limits: NDArray[np.int64],
    waited: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """Return circuits of each pair: the least circuits / demand is as large as it can be, then nothing idles.

    For a ratio r pair p needs ceil(r demand_p) circuits, so the largest feasible r is found by bisection.
    What is left goes to the pair that has the least for its demand, one by one. Where not every pair can have
    a circuit, those that have waited most plans are served first, of them the largest demands; then it is no
    longer proven to be the best. [pairs]

    Examples
    --------
    Two pairs leave GPU 0, which has 4 circuits, the second wants three times as much:

    >>> counters = np.array([[0], [0]])
    >>> max_min_circuits(np.array([1.0, 3.0]), counters, np.array([4])).tolist()
    [1, 3]
    """
    pairs, count = len(demand), len(limits)
    served = np.ones(pairs, bool)
    if (_used(counters, np.ones(pairs), count) > limits).any():
        room = limits.copy()
        served[:] = False
        longest = np.zeros(pairs) if waited is None else -waited
        for p in np.lexsort((np.arange(pairs), -demand, longest)):
            served[p] = (room[counters[p]] > 0).all()
            room[counters[p]] -= served[p]

    def needed(ratio: float) -> NDArray[np.float64]:
        return np.where(served, np.maximum(np.ceil(ratio * demand * (1 - 1e-12)), 1.0), 0.0)

    low, high = 0.0, float((limits.max() + 1) / demand[served].min()) if served.any() else 0.0
    for _ in range(64):
        middle = (low + high) / 2
        if (_used(counters, needed(middle), count) <= limits).all():
            low = middle
        else:
            high = middle
    circuits = needed(low).astype(np.int64)

    room = limits - _used(counters, circuits.astype(float), count).astype(np.int64)
    waiting = [(circuits[p] / demand[p], p) for p in range(pairs)]
    heapq.heapify(waiting)
    while waiting:
        _, p = heapq.heappop(waiting)
        if (room[counters[p]] > 0).all():
            room[counters[p]] -= 1
            circuits[p] += 1
            heapq.heappush(waiting, (circuits[p] / demand[p], p))
    return circuits


@attrs.frozen(kw_only=True, eq=False)
class ClosPlan(CircuitPlan):
    """Circuits, what no plan can exceed, and who waits."""

    waiting: Waiting
    port_ratio: float | None = None

    @property
    def bound_ratio(self) -> float | None:
        """Return what the ports alone allow, as on one large switch."""
        return self.port_ratio


class ClosExact(Scheduler):
    """See `max_min_circuits`."""

    name = "clos-exact"
    summary = "max-min circuits for switches made of small ones; exact where every pair gets a circuit"
    plans = ClosCircuits

    def plan(
        self, control: CircuitControl, traffic: TrafficMatrix, previous: CircuitPlan | None
    ) -> CircuitPlan:
        assert isinstance(control, ClosCircuits)  # `plans` says so
        before = previous.waiting if isinstance(previous, ClosPlan) else Waiting()
        circuits = max_min_circuits(
            traffic.demand,
            control.counters(traffic.src, traffic.dst),
            control.limits,
            before.of(traffic.key),
        )
        lit = circuits > 0
        bound = (
            port_bound(traffic, control.circuit_gbps * control.circuits_per_gpu) if traffic.pairs else None
        )
        return ClosPlan(
            gpus=control.gpus,
            src=traffic.src[lit],
            dst=traffic.dst[lit],
            gbps=circuits[lit] * control.circuit_gbps,
            waiting=before.after(traffic.key, lit),
            port_ratio=bound,
        )


@attrs.frozen(kw_only=True)
class SipOcsClosOptions:
    switches: int = option(
        16, doc="large switches; a GPU has a link of B / switches to each", validator=between(1, 1024)
    )
    group_gpus: int = option(
        16, doc="GPUs on one switch of the first stage, n", validator=between(1, MAX_GPUS)
    )
    uplinks: int | None = option(
        None, doc="links of such a switch to middle switches, m; left out: n, which connects all that one "
        "large switch does",
        validator=attrs.validators.optional(between(1, MAX_GPUS)),
    )  # fmt: skip
    interval_us: float | None = interval()
    reconfiguration_us: float | None = optional_us(
        "time a changed circuit is dark; left out: 10 ms", at_least(0)
    )
    relay: bool = option(
        False,
        doc="with one plan for the job: pairs without a circuit go through a GPU that both reach",
        validator=attrs.validators.instance_of(bool),
    )
    latency_us: float = option(
        0.0, doc="time a byte takes through a circuit", unit="us", converter=parse_us, validator=at_least(0)
    )

    def __attrs_post_init__(self) -> None:
        if self.uplinks is not None and self.uplinks > self.group_gpus:
            raise ConfigError(f"uplinks must be at most {self.group_gpus} (group_gpus), got {self.uplinks}")
        check_times(self.interval_us, self.reconfiguration_us, 10_000.0, relay=self.relay)


class SipOcsClos(Topology):
    """Links 0 .. N-1 are what each GPU sends on, N .. 2N-1 what each receives on, B Gbps each."""

    name = "sip-ocs-clos"
    summary = "optical circuit switches made of small ones in three stages, with m links up for n GPUs"
    scheduler = "clos-exact"
    Options = SipOcsClosOptions

    def build(self, cluster: Cluster) -> Fabric:
        options = self.options
        size = min(options.group_gpus, cluster.gpus)
        uplinks = min(options.uplinks or size, size)
        groups = -(-cluster.gpus // size)
        control = ClosCircuits(
            gpus=cluster.gpus,
            circuit_gbps=cluster.bandwidth_gbps / options.switches,
            circuits_per_gpu=options.switches,
            interval_us=options.interval_us,
            reconfiguration_us=10_000.0 if options.reconfiguration_us is None else options.reconfiguration_us,
            relay=options.relay,
            group_gpus=size,
            uplinks=uplinks,
        )
        told = (
            f"each of {options.switches} switches is {groups} of {size} x {uplinks} ports, {uplinks} of "
            f"{groups} x {groups} and {groups} of {uplinks} x {size}, instead of one of {cluster.gpus} ports"
        )
        return Fabric.with_ports(
            circuits=control,
            port_gbps=cluster.bandwidth_gbps,
            latency_us=options.latency_us,
            hints=FabricHints(degree=options.switches),
            notes=(told,),
        )
