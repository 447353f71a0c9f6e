"""What a scheduler may decide on a circuit network, and what it decides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import PluginError
from sipml_core.fields import at_least, float64_vector, frozen, int32_vector, int64_vector, positive
from sipml_core.model.pairs import PairIndex
from sipml_core.model.routes import PairArray, Routes


@frozen(kw_only=True, eq=False)
class SharedMedia:
    """What circuits of several pairs share beside ports, such as the fibres of a ring.

    The entries ``start[p]`` to ``start[p + 1] - 1`` say what pair p crosses: a rate x takes ``weight * x`` of
    the medium ``medium``.
    """

    #: [pairs + 1]
    start: NDArray[np.int64] = attrs.field(converter=int64_vector)
    #: [entries]
    medium: NDArray[np.int32] = attrs.field(converter=int32_vector)
    #: [entries]
    weight: NDArray[np.float64] = attrs.field(converter=float64_vector)
    #: Capacity of each medium. [media] [Gbps]
    gbps: NDArray[np.float64] = attrs.field(converter=float64_vector)


@frozen(kw_only=True, eq=False)
class CircuitControl:
    """The part of a fabric that is switched. Plugins subclass it to add what their scheduler needs.

    A subclass whose circuits have more rules than these overrides `check`. Then only a scheduler that
    names it, or a subclass of it, as what it `plans` is asked: others cannot know the rule.
    """

    gpus: int
    #: Capacity of one circuit. [Gbps]
    circuit_gbps: float = attrs.field(validator=positive)
    #: Circuits that may start, and that may end, at one GPU.
    circuits_per_gpu: int = attrs.field(validator=at_least(1))
    #: Time between decisions; None: decided once, before the job starts. [us]
    interval_us: float | None = None
    #: Time for which a changed circuit carries nothing. [us]
    reconfiguration_us: float = attrs.field(default=0.0, validator=at_least(0))
    #: Every circuit goes dark at every decision, changed or not (the paper's simulator).
    all_dark: bool = False
    #: One-shot circuits: pairs that get none are relayed through a GPU they both reach.
    relay: bool = False
    #: Packets beside circuits: what pairs cross that have no circuit in the first plan, for the whole job.
    packets: Callable[[PairArray, PairArray], Routes] | None = None
    #: Pairs whose circuits would carry less than this in the whole job get none. [bytes]
    packets_below_bytes: float = attrs.field(default=0.0, validator=at_least(0))

    def may_connect(self, src: NDArray[np.int32], dst: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Which ordered pairs can ever hold a circuit. [pairs]"""
        return np.not_equal(src, dst)

    def media(self, src: NDArray[np.int32], dst: NDArray[np.int32]) -> SharedMedia | None:
        """Return what circuits of these pairs share beside ports; None: nothing.

        Where circuits follow demand closely, pairs share this as packets would: for estimates.
        """
        return None

    def seen_by(self, gpus: NDArray[np.int32]) -> CircuitControl | None:
        """Return the circuits of a job that has these GPUs of the network, numbered by its ranks.

        None, by default: all that the network has among them, planned as a whole (`CircuitView`). A subclass
        may return fewer, and the same for all jobs whose GPUs are to each other as these are.
        """
        return None

    def contested(
        self, gpus: NDArray[np.int32], src: NDArray[np.int32], dst: NDArray[np.int32]
    ) -> NDArray[np.int64] | None:
        """Return what circuits of pairs of a job can occupy that those between other GPUs can, too.

        Any numbers that stand for it, each once: the segments of a ring, say. Jobs with nothing in common
        here plan their circuits as if each were alone, others divide them (`divided`). By default there is
        nothing, for ports belong to their GPUs; None, not known, where a subclass has rules of its own.

        Parameters
        ----------
        gpus
            Those of the job.
        src, dst
            GPUs of the pairs that it uses. [pairs]
        """
        return np.empty(0, np.int64) if type(self).check is CircuitControl.check else None

    def divided(self, parts: int) -> CircuitControl | None:
        """Return the same circuits with one of so many equal parts of what jobs contest.

        Plans of as many jobs, each for a part, must exist side by side. None: it is not enough for so many.
        """
        return self

    def check(self, plan: CircuitPlan) -> None:
        """Refuse a plan that cannot exist physically, whoever made it.

        Its pairs are in order, each once; all may be connected; each has a whole number of circuits; and at
        no GPU start, or end, more than `circuits_per_gpu`. A subclass with more rules calls this first.

        Raises
        ------
        PluginError
            Naming the first rule that is broken, and where.

        Examples
        --------
        >>> control = CircuitControl(gpus=3, circuit_gbps=10.0, circuits_per_gpu=2)
        >>> control.check(CircuitPlan(gpus=3, src=[0, 0], dst=[1, 2], gbps=[10.0, 10.0]))
        >>> control.check(CircuitPlan(gpus=3, src=[0, 0], dst=[1, 2], gbps=[20.0, 10.0]))
        Traceback (most recent call last):
        ...
        sipml_core.errors.PluginError: the plan has 3 circuits that start at GPU 0, which has 2
        """
        check_form(self, plan)
        circuits = np.rint(plan.gbps / self.circuit_gbps)
        self.check_ports(plan.src, circuits, "start")
        self.check_ports(plan.dst, circuits, "end")

    def check_ports(self, gpu: NDArray[np.int32], circuits: NDArray[np.float64], what: str) -> None:
        """Refuse more circuits at one GPU than it has; `circuits` of each pair start or end at `gpu`."""
        used = np.bincount(gpu, weights=circuits, minlength=self.gpus)
        worst = int(used.argmax())
        if used[worst] > self.circuits_per_gpu:
            raise PluginError(
                f"the plan has {used[worst]:g} circuits that {what} at GPU {worst}, "
                f"which has {self.circuits_per_gpu}"
            )

    def transition(self, previous: CircuitPlan | None, new: CircuitPlan) -> CircuitPlan:
        """Return `new` with what it leaves alone and what goes dark, as far as it does not say so itself.

        Circuits of a pair that it had before stay lit; a pair that gains any has those it gains dark for
        `reconfiguration_us`.

        Examples
        --------
        Pair 0->1 had one circuit and gets two, 0->2 is new.

        >>> control = CircuitControl(gpus=3, circuit_gbps=10.0, circuits_per_gpu=3, reconfiguration_us=5.0)
        >>> before = CircuitPlan(gpus=3, src=[0], dst=[1], gbps=[10.0])
        >>> plan = CircuitPlan(gpus=3, src=[0, 0], dst=[1, 2], gbps=[20.0, 10.0])
        >>> plan = control.transition(before, plan)
        >>> plan.kept_gbps.tolist(), plan.dark_us.tolist()
        ([10.0, 0.0], [5.0, 5.0])
        """
        kept_gbps, dark_us = new.kept_gbps, new.dark_us
        if kept_gbps is None:
            before = np.zeros(len(new.src)) if previous is None else previous.capacity_gbps(new.src, new.dst)
            kept_gbps = np.minimum(new.gbps, before)
        if dark_us is None:
            dark_us = np.where(kept_gbps < new.gbps, self.reconfiguration_us, 0.0)
        if kept_gbps is new.kept_gbps and dark_us is new.dark_us:
            return new
        return attrs.evolve(new, kept_gbps=kept_gbps, dark_us=dark_us)


def at_rows(values: NDArray[np.float64], row: NDArray[np.intp]) -> NDArray[np.float64]:
    """``values[row]``, and 0 where the row is -1."""
    return np.append(values, 0.0)[row]


@frozen(kw_only=True, eq=False)
class CircuitOccupancy:
    """Which resources of a circuit network a plan uses: channels at places (wavelengths on segments)."""

    #: What places and channels are called, and the groups that they come in: directions, say.
    place_name: str
    channel_name: str
    groups: tuple[str, ...]
    places: int
    #: Of each group.
    channels: tuple[int, ...]
    #: Group, place and channel of each resource in use, and the pair whose circuit uses it. [used]
    group: NDArray[np.int32] = attrs.field(converter=int32_vector)
    place: NDArray[np.int32] = attrs.field(converter=int32_vector)
    channel: NDArray[np.int32] = attrs.field(converter=int32_vector)
    src: NDArray[np.int32] = attrs.field(converter=int32_vector)
    dst: NDArray[np.int32] = attrs.field(converter=int32_vector)


@frozen(kw_only=True, eq=False)
class CircuitPlan:
    """Capacities of ordered pairs, sorted by (src, dst). Pairs not named have no circuit.

    Plugins subclass it to add the exact resources: port maps, wavelength indices.
    """

    gpus: int
    src: NDArray[np.int32] = attrs.field(converter=int32_vector)
    dst: NDArray[np.int32] = attrs.field(converter=int32_vector)
    #: Capacity once everything has settled. [pairs] [Gbps]
    gbps: NDArray[np.float64] = attrs.field(converter=float64_vector)
    #: Capacity of the circuits this plan leaves alone: what carries while the rest is dark. None: what the
    #: pair had before, see `CircuitControl.transition`. [pairs] [Gbps]
    kept_gbps: NDArray[np.float64] | None = attrs.field(
        default=None, converter=attrs.converters.optional(float64_vector)
    )
    #: How long each pair's changed circuits are dark; None: as the control says. [pairs] [us]
    dark_us: NDArray[np.float64] | None = attrs.field(
        default=None, converter=attrs.converters.optional(float64_vector)
    )

    @cached_property
    def key(self) -> NDArray[np.int64]:
        """src * gpus + dst, ascending. [pairs]"""
        return PairIndex(self.gpus).key(self.src, self.dst)

    def capacity_gbps(self, src: NDArray[np.int32], dst: NDArray[np.int32]) -> NDArray[np.float64]:
        """Settled capacity of any pairs; 0 where the plan has no circuit. [Gbps]"""
        return at_rows(self.gbps, self.row_of(src, dst))

    def row_of(self, src: NDArray[np.int32], dst: NDArray[np.int32]) -> NDArray[np.intp]:
        """Where any pairs stand in the plan; -1 for one that it does not name."""
        if len(self.src) == 0:
            return np.full(len(src), -1)
        wanted = PairIndex(self.gpus).key(src, dst)
        row = np.searchsorted(self.key, wanted)
        row[row == len(self.key)] = 0
        row[self.key[row] != wanted] = -1
        return row

    @property
    def bound_ratio(self) -> float | None:
        """Least capacity / demand that no plan can exceed, even with fractions of circuits; None: unknown.

        [Gbps per unit of demand]
        """
        return None

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a reader should know of the plan beside its capacities, a line each."""
        return ()

    def stays(self, previous: CircuitPlan) -> bool:
        """Return whether all is as in a plan that was in force, resource by resource, and nothing is dark.

        Such a plan can exist if that could, and is not checked again. False: not known.
        """
        return False

    def occupancy(self) -> CircuitOccupancy | None:
        """Return the resources that the circuits use; None: the plan knows of capacities only."""
        return None

    def rows(self) -> Iterator[dict[str, Any]]:
        """One record per pair, for CSV and tables; subclasses add their resources."""
        for i in range(len(self.src)):
            yield {"src": int(self.src[i]), "dst": int(self.dst[i]), "capacity_gbps": float(self.gbps[i])}

    def draw(self, axes: Any) -> None:
        """Draw the plan into matplotlib axes: here, a heat map of capacities."""
        dense = np.zeros((self.gpus, self.gpus))
        dense[self.src, self.dst] = self.gbps
        image = axes.imshow(dense, interpolation="nearest", cmap="viridis")
        axes.set_xlabel("to GPU")
        axes.set_ylabel("from GPU")
        axes.figure.colorbar(image, ax=axes, label="capacity [Gbps]")


#: Bits of an infinite float64.
_INFINITY = np.uint64(0x7FF0_0000_0000_0000)


def finite_not_negative(values: NDArray[np.float64]) -> bool:
    """Return whether no value is negative, infinite or NaN, in one pass; False for -0.0, too.

    Floats that are finite and not negative sort like their bits, below those of infinity; all others are
    above.

    >>> some = ([], [0.0, 2.0], [1.0, np.nan], [-1.0], [np.inf])
    >>> [finite_not_negative(np.array(values)) for values in some]
    [True, True, False, False, False]
    """
    return bool(np.maximum.reduce(values.view(np.uint64), initial=np.uint64(0)) < _INFINITY)


#: Relative error of a capacity that is a whole number of circuits.
_TOLERANCE = 1e-9


def check_form(control: CircuitControl, plan: CircuitPlan) -> None:
    """Refuse a plan with pairs out of order, that may not be connected, or with parts of circuits."""
    if plan.gpus != control.gpus:
        raise PluginError(f"the plan is for {plan.gpus} GPUs, the network has {control.gpus}")
    for name in ("gbps", "kept_gbps", "dark_us"):
        values = getattr(plan, name)
        if values is None and name != "gbps":
            continue
        if not len(values) == len(plan.src) == len(plan.dst):
            raise PluginError(f"the plan has {len(values)} {name} for {len(plan.src)} pairs")
        # First whether anything is wrong at all, in one pass: every plan is looked at.
        if not finite_not_negative(values):
            _refuse(plan, ~(np.isfinite(values) & (values >= 0)), f"{name} is negative or not finite")
    if not len(plan.src):
        return
    if max(plan.src.view(np.uint32).max(), plan.dst.view(np.uint32).max()) >= plan.gpus:
        ends = (plan.src < 0) | (plan.src >= plan.gpus) | (plan.dst < 0) | (plan.dst >= plan.gpus)
        _refuse(plan, ends, f"the GPUs are 0 to {plan.gpus - 1}")
    descends = plan.key[1:] <= plan.key[:-1]
    if descends.any():
        _refuse(plan, np.append(False, descends), "pairs are out of order, or named twice")
    _refuse(plan, ~control.may_connect(plan.src, plan.dst), "no circuit can join them")
    circuits = plan.gbps / control.circuit_gbps
    whole = np.rint(circuits)
    if (circuits != whole).any():
        parts = np.abs(circuits - whole) > _TOLERANCE * np.maximum(circuits, 1.0)
        _refuse(plan, parts, f"the capacity is no whole number of circuits of {control.circuit_gbps:g} Gbps")
    if plan.kept_gbps is not None and (plan.kept_gbps > plan.gbps).any():
        _refuse(plan, plan.kept_gbps > plan.gbps * (1 + _TOLERANCE), "more is kept than planned")


def _refuse(plan: CircuitPlan, bad: NDArray[np.bool_], why: str) -> None:
    """Name the first pair at fault, if there is one."""
    if bad.any():
        k = int(np.flatnonzero(bad)[0])
        raise PluginError(f"the plan is wrong at {plan.src[k]}->{plan.dst[k]}: {why}")
