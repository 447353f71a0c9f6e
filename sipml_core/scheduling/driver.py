"""Circuits that follow the job: the scheduler is asked at every decision instant of the engine."""

from __future__ import annotations

import copy
from collections.abc import Hashable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError, InfeasibleError, PluginError
from sipml_core.model import (
    CircuitControl,
    CircuitParts,
    CircuitPlan,
    CircuitView,
    Network,
    PairIndex,
    PartsPlan,
    TaskGraph,
    TrafficMatrix,
    ViewPlan,
)
from sipml_core.plugin import DemandForecast, PlansAhead, Scheduler
from sipml_core.scheduling.circuittraffic import CircuitTraffic, circuit_traffic
from sipml_core.scheduling.demandrules import BYTES, DemandRule, interval_bytes

if TYPE_CHECKING:
    from sipml_core.engine import CircuitSettings


#: So many sets of pairs that plans had are known again, at most.
PLACES_KEPT = 64

#: Places in an array: all, or some.
Places = slice | NDArray[np.intp]


def job_bytes(network: Network, tasks: TaskGraph) -> NDArray[np.float64]:
    """Bytes that the whole job sends over each circuit. [circuits]"""
    return network.link_bytes(tasks.size_bytes)[network.first_circuit :]


def refuse_control(scheduler: Scheduler, control: CircuitControl) -> None:
    """`ConfigError` if the scheduler cannot know the rules of these circuits; both are named.

    It must plan the control's kind, and the class that made the last rule (`CircuitControl.check`).
    """
    if isinstance(control, CircuitView):
        refuse_control(scheduler, control.whole)
        return
    if isinstance(control, CircuitParts):
        for part in {type(part.control): part.control for part in control.parts}.values():
            refuse_control(scheduler, part)
        return
    kind = type(control)
    ruled = next(cls for cls in kind.__mro__ if "check" in vars(cls))
    if not isinstance(control, scheduler.plans) or not issubclass(scheduler.plans, ruled):
        raise ConfigError(
            f"scheduler {scheduler.name!r} plans {scheduler.plans.__name__}, not {kind.__name__}, "
            "which has rules that it does not know; leave scheduler out for the network's own"
        )


def planned(
    scheduler: Scheduler,
    control: CircuitControl,
    traffic: TrafficMatrix,
    previous: CircuitPlan | None,
    later: TrafficMatrix | None = None,
) -> CircuitPlan:
    """Return the scheduler's plan, checked against what exists, with what stays lit and what goes dark.

    `later`: traffic that comes later, for schedulers that can plan for it (`PlansAhead`); of one network, not
    of a view or of parts.

    Raises
    ------
    ConfigError
        The scheduler does not plan such circuits.
    PluginError
        Its plan cannot exist.
    """
    refuse_control(scheduler, control)
    return _plan_or_stay(scheduler, control, traffic, previous, later)[0]


def _plan_or_stay(
    scheduler: Scheduler,
    control: CircuitControl,
    traffic: TrafficMatrix,
    previous: CircuitPlan | None,
    later: TrafficMatrix | None = None,
) -> tuple[CircuitPlan, bool]:
    """Return what `planned` does where the scheduler knows the circuits, and whether all stays as it was."""
    if isinstance(control, CircuitParts):
        plan = _planned_parts(scheduler, control, traffic, previous)
        return plan, previous is not None and plan.stays(previous)
    if isinstance(control, CircuitView):
        before = previous.whole if isinstance(previous, ViewPlan) else None
        plan = control.seen(planned(scheduler, control.whole, control.traffic_of(traffic), before))
        return plan, previous is not None and plan.stays(previous)
    try:
        if later is not None and isinstance(scheduler, PlansAhead):
            plan = scheduler.plan_ahead(control, traffic, previous, later)
        else:
            plan = scheduler.plan(control, traffic, previous)
    except ConfigError as error:  # such as arrays that are none: what a user asked for was checked before
        raise PluginError(f"scheduler {scheduler.name!r}: {error}") from None
    if not isinstance(plan, CircuitPlan):
        raise PluginError(f"scheduler {scheduler.name!r} returned a {type(plan).__name__}, not a CircuitPlan")
    if previous is not None and plan.stays(previous):
        return plan, True
    try:
        control.check(plan)
    except PluginError as error:
        raise PluginError(f"scheduler {scheduler.name!r}: {error}") from None
    return control.transition(previous, plan), plan is previous


def _planned_parts(
    scheduler: Scheduler, control: CircuitParts, traffic: TrafficMatrix, previous: CircuitPlan | None
) -> CircuitPlan:
    """Return the scheduler's plans of all parts, each for the traffic inside it.

    Parts with the same circuits, traffic and previous plan are planned once: they share the plan.
    """
    before = previous.plans if isinstance(previous, PartsPlan) else (None,) * len(control.parts)
    plans, known = [], dict[tuple[object, ...], CircuitPlan]()
    inside = control.traffic_inside(traffic)
    for part, of_part, (src, dst, demand) in zip(control.parts, before, inside, strict=True):
        key = (id(part.control), id(of_part), src.tobytes(), dst.tobytes(), demand.tobytes())
        if key not in known:
            mine = TrafficMatrix.from_pairs(part.control.gpus, src, dst, demand)
            known[key] = planned(scheduler, part.control, mine, of_part)
        plans.append(known[key])
    return control.together(tuple(plans))


class ScheduledCircuits:
    """Drives a scheduler from the engine's decision instants.

    The first plan, made before the job starts, is for the job's whole traffic, which is known in
    advance (paper, section 3.3); its circuits are ready at time 0. Later ones are for what the
    estimator expects of the next interval.

    Parameters
    ----------
    rule, gates
        How much the pairs that a computation waits for count, and which these are, as sorted keys of a
        `PairIndex`.
    replan_above
        The scheduler is asked only where more than this part of the demand has moved since the plan in force;
        0: at every decision instant.
    """

    def __init__(
        self,
        *,
        control: CircuitControl,
        scheduler: Scheduler,
        estimator: DemandForecast,
        network: Network,
        total_bytes: NDArray[np.float64],
        rule: DemandRule = BYTES,
        gates: NDArray[np.int64] | None = None,
        replan_above: float = 0.0,
    ) -> None:
        self.interval_us = control.interval_us
        self.control = control
        self.scheduler = scheduler
        self.estimator = estimator
        self.network = network
        self._traffic = CircuitTraffic(network)
        #: Pairs that its circuits join, as of a `PairIndex`, ascending. [circuits]
        self._keys = _circuit_keys(network)
        #: All pairs of the job, also where `network` has only those that stand for all.
        self.planned_network = network
        self.rule = rule
        self._weighs = rule != BYTES
        #: Whether each circuit joins a gating pair. [circuits]
        self._gates = np.isin(self._keys, () if gates is None else gates)
        self.replan_above = replan_above
        refuse_control(scheduler, control)
        #: By the ends of the pairs of a plan, `_places` of them: often a later plan has the same pairs.
        self._placed: dict[tuple[bytes, bytes], tuple[Places, Places]] = {}
        self.plan = self._plan(total_bytes, None)
        #: Plans made, and decision instants at which the one in force was kept unasked.
        self.plans = 1
        self.kept = 0
        #: What the plan in force was made for. [circuits] [bytes]
        self._planned_for = total_bytes
        #: What the engine was told last, where the plan before was the same: it is told the same again.
        self._settled: CircuitSettings | None = None

    def on(self, network: Network, estimator: DemandForecast | None = None) -> ScheduledCircuits:
        """The same first plan on a network whose routes were changed to suit it.

        Parameters
        ----------
        estimator
            For the circuits of that network, some of those before; None: they are the same, or set once.
        """
        other = copy.copy(self)
        other.network, other._keys = network, _circuit_keys(network)
        other._traffic = CircuitTraffic(network)
        other._settled, other._placed = None, {}
        if estimator is not None:
            other.estimator = estimator
            left = left_circuits(self.network, network)
            other._gates, other._planned_for = self._gates[left], self._planned_for[left]
        return other

    @property
    def choice(self) -> Hashable:
        """Return what tells these from other circuits of the same job."""
        return self.rule

    def fewest_circuits(self) -> int:
        """Return the circuits of the pair that gets the fewest where all pairs ask for the same."""
        return fewest_circuits(self.scheduler, self.control, self.planned_network)

    def decide(
        self, now_us: float, sent_bytes: NDArray[np.float64], backlog_bytes: NDArray[np.float64]
    ) -> CircuitSettings | None:
        """Capacities of the circuits of the network from `now_us` on; None: leave them."""
        if now_us == 0:
            return self._settings(self.plan, at_start=True)
        demand = self.estimator(
            now_us=now_us,
            interval_us=self.interval_us or 0.0,
            sent_bytes=sent_bytes,
            backlog_bytes=backlog_bytes,
        )
        if not np.count_nonzero(demand):
            return None
        if self._still_serves(demand):
            self.kept += 1
            return None
        self._planned_for = demand
        self.plan, stays = self._plan_or_stay(demand, self.plan)
        self.plans += 1
        if not stays or self._settled is None:
            settings = self._settings(self.plan, at_start=False)
            self._settled = settings if stays else None
            return settings
        return self._settled

    def _still_serves(self, demand: NDArray[np.float64]) -> bool:
        """Return whether the plan in force was made for nearly the same, and leaves nobody without."""
        if self.replan_above == 0 or moved_part(self._planned_for, demand) > self.replan_above:
            return False
        gbps = self.plan.capacity_gbps(self.network.circuit_src, self.network.circuit_dst)
        return bool((gbps[demand > 0] > 0).all())

    def _plan(
        self,
        demand: NDArray[np.float64],
        previous: CircuitPlan | None,
        later: TrafficMatrix | None = None,
    ) -> CircuitPlan:
        return self._plan_or_stay(demand, previous, later)[0]

    def _plan_or_stay(
        self,
        demand: NDArray[np.float64],
        previous: CircuitPlan | None,
        later: TrafficMatrix | None = None,
    ) -> tuple[CircuitPlan, bool]:
        """Return the plan for a demand of circuits, and whether all is as in the one before.

        `later`: traffic that comes later, see `planned`.
        """
        if self._weighs:
            port_gbps = self.control.circuits_per_gpu * self.control.circuit_gbps
            most_bytes = interval_bytes(port_gbps, self.control.interval_us)
            demand = self.rule.weighted(demand, self._gates, most_bytes)
        traffic = self._traffic(demand)
        return _plan_or_stay(self.scheduler, self.control, traffic, previous, later)

    def _settings(self, plan: CircuitPlan, *, at_start: bool) -> CircuitSettings:
        from sipml_core.engine import CircuitSettings  # here: plugins load this room, and need no engine

        at, named = self._places(plan)
        # Of each circuit of the network, those that the plan does not name with 0. [3, circuits]
        values = np.zeros((3, len(self._keys)))
        gbps, kept_gbps, dark_us = values
        gbps[at] = plan.gbps[named]
        if at_start:
            return CircuitSettings.at_once(gbps)
        if self.control.all_dark:
            dark_us[:] = self.control.reconfiguration_us
            return CircuitSettings(gbps=gbps, kept_gbps=kept_gbps, dark_us=dark_us)
        assert plan.kept_gbps is not None
        assert plan.dark_us is not None
        kept_gbps[at], dark_us[at] = plan.kept_gbps[named], plan.dark_us[named]
        return CircuitSettings(gbps=gbps, kept_gbps=kept_gbps, dark_us=dark_us)

    def _places(self, plan: CircuitPlan) -> tuple[Places, Places]:
        """Return where the circuits of a plan stand among those of the network, and which of them do."""
        pairs = plan.src.tobytes(), plan.dst.tobytes()
        if pairs not in self._placed:
            at: Places = slice(None)
            named: Places = slice(None)
            if not np.array_equal(plan.key, self._keys):
                at = np.searchsorted(self._keys, plan.key)
                at[at == len(self._keys)] = 0
                there = self._keys[at] == plan.key if len(self._keys) else np.zeros(0, np.bool_)
                named = slice(None)
                if not there.all():
                    named = np.flatnonzero(there)
                    at = at[named]
            if len(self._placed) >= PLACES_KEPT:
                self._placed.clear()
            self._placed[pairs] = at, named
        return self._placed[pairs]


def _circuit_keys(network: Network) -> NDArray[np.int64]:
    """Return the pairs that circuits of a network join, as of a `PairIndex`, ascending. [circuits]"""
    return PairIndex(network.gpus).key(network.circuit_src, network.circuit_dst)


def left_circuits(before: Network, network: Network) -> NDArray[np.intp]:
    """Return where the circuits of a network stand in one that had these and others. [circuits]"""
    return np.searchsorted(_circuit_keys(before), _circuit_keys(network))


def moved_part(before: NDArray[np.float64], now: NDArray[np.float64]) -> float:
    """Return the part of all demand that is for other circuits than before: 0 for equal ratios, up to 1.

    >>> moved_part(np.array([2.0, 2.0, 0.0]), np.array([1.0, 1.0, 0.0]))
    0.0
    >>> moved_part(np.array([2.0, 2.0, 0.0]), np.array([3.0, 0.0, 1.0]))
    0.5
    """
    if not before.any() or not now.any():
        return float(before.any() != now.any())
    return float(np.abs(before / before.sum() - now / now.sum()).sum() / 2)


def unserved_pairs(network: Network, plan: CircuitPlan) -> NDArray[np.intp]:
    """Circuits of the network that the plan leaves without capacity. [unserved]"""
    return np.flatnonzero(plan.capacity_gbps(network.circuit_src, network.circuit_dst) <= 0)


def fewest_circuits(scheduler: Scheduler, control: CircuitControl, network: Network) -> int:
    """Return the circuits of the pair of the job that gets the fewest where all pairs ask for the same."""
    traffic = circuit_traffic(network, np.ones(len(network.circuit_src)))
    plan = planned(scheduler, control, traffic, None)
    least_gbps = plan.capacity_gbps(network.circuit_src, network.circuit_dst).min(initial=np.inf)
    return int(np.rint(min(least_gbps / control.circuit_gbps, control.circuits_per_gpu)))


def crowded(scheduler: Scheduler, control: CircuitControl, network: Network) -> bool:
    """Return whether a circuit that stands idle is one that somebody may wait for.

    That is where one plan cannot give every pair of the job two circuits: a pair keeps one whatever others
    ask for, so that with one each there is nothing left to give to those that have bytes.
    """
    return fewest_circuits(scheduler, control, network) < 2


def refuse_unserved(network: Network, plan: CircuitPlan, circuits_per_gpu: int) -> None:
    """`InfeasibleError` naming pairs that one-shot circuits would leave out for the whole job."""
    left_out = unserved_pairs(network, plan)
    if len(left_out):
        named = ", ".join(f"{network.circuit_src[i]}->{network.circuit_dst[i]}" for i in left_out[:3])
        raise InfeasibleError(
            f"{len(left_out)} of {len(network.circuit_src)} pairs get no circuit ({named}, ...): "
            f"a GPU holds {circuits_per_gpu} at a time, and they are set once; allow more circuits, "
            "re-plan (interval_us), relay (relay = true), or use a smaller mp"
        )
