"""Circuits planned for what a phase of the job sends, and planned again when it has ended."""

from __future__ import annotations

import copy
import math
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import format_us, frozen
from sipml_core.model import CircuitParts, CircuitPlan, CircuitView, Network
from sipml_core.plugin import DemandForecast, PlansAhead
from sipml_core.scheduling.circuittraffic import circuit_traffic
from sipml_core.scheduling.driver import (
    ScheduledCircuits,
    left_circuits,
    unserved_pairs,
)
from sipml_core.scheduling.jobphases import JobPhase, JobPhases
from sipml_core.scheduling.kindchoice import KindEstimates, Sharing, span_us
from sipml_core.scheduling.kindphases import MOST_PHASES, Bursts, kind_told, reasons_of

if TYPE_CHECKING:
    from sipml_core.engine import CircuitSettings

#: Why circuits are not planned by phase where a job has none.
_NO_PHASES = "no iteration sends both activations and gradients"
#: What is left of a circuit's bytes below this part of them is rounding.
_ROUNDING = 1e-9


@frozen(kw_only=True, eq=False)
class _Way:
    """The phases that circuits are planned for; none: they are set once, or planned by interval."""

    phases: tuple[JobPhase, ...] = ()
    #: What tells this from other ways, in words.
    told: str = ""

    def only(self, carried: NDArray[np.bool_]) -> _Way:
        """Return the same without the bytes of circuits that are not planned for."""
        if carried.all():
            return self
        chosen = [(phase, carried[phase.circuit]) for phase in self.phases]
        phases = (
            attrs.evolve(phase, circuit=phase.circuit[own], more_bytes=phase.more_bytes[own])
            for phase, own in chosen
        )
        return attrs.evolve(self, phases=tuple(phases))

    def on(self, left: NDArray[np.intp], circuits: int) -> _Way:
        """Return the same on a network that has only some of so many circuits, `left`."""
        return attrs.evolve(self, phases=tuple(phase.on(left, circuits) for phase in self.phases))


class PhasedCircuits(ScheduledCircuits):
    """Drives a scheduler from the ends of a job's phases, for what the next one has left to send.

    Before the run `plan` is for the whole job. At time 0 it is that of the first phase. Between the ends of
    phases the scheduler is asked after every interval in which a pair waits without a circuit. What a plan
    leaves idle is given to pairs of the phase after it, by schedulers that can (`PlansAhead`). Circuits are
    set once, for the whole job, where by estimate that takes no longer. A job without phases is planned for
    by interval if one plan cannot serve every pair.

    Parameters
    ----------
    phases
        Of activations and gradients, those with the most first: see `all_job_phases`.
    bursts
        Of the job: kinds of activations have phases of their own where that is faster by estimate; None: they
        have not.
    by_interval
        Whether to plan after every interval is tried as well.
    """

    def __init__(
        self,
        *,
        phases: Sequence[JobPhases],
        bursts: Bursts | None = None,
        by_interval: bool = False,
        **scheduled: Any,
    ) -> None:
        super().__init__(**scheduled)
        carried = scheduled["total_bytes"] > 0  # what goes by packets is planned for in no phase
        #: Phases that have ended, and whether one has since the last decision.
        self._phase = 0
        self._begun = False
        #: What circuits have carried, and what they have to carry until the phase ends. [circuits] [bytes]
        self._sent_bytes = np.zeros(len(self.network.circuit_src))
        self._total_bytes = np.zeros_like(self._sent_bytes)
        self.why_once = ""
        self._by_interval = by_interval
        ways = self._ways_of(phases, bursts, carried)
        if not ways and not self.why_once and not len(unserved_pairs(self.network, self.plan)):
            self.why_once = _NO_PHASES
        #: How it is done, and what is tried as well, with fewer plans.
        self._way, *self._fewer = ways or [_Way()]
        if self.why_once:
            self._set_once()

    def _ways_of(
        self, phases: Sequence[JobPhases], bursts: Bursts | None, carried: NDArray[np.bool_]
    ) -> list[_Way]:
        """Return the phases that are better by estimate than to set circuits once, or say why none is."""
        coarse = [
            _Way(phases=each.phases, told=", gradients by stage" if each is not phases[-1] else "").only(
                carried
            )
            for each in phases
            if each.phases
        ]
        estimates = None if bursts is None else self._estimates(bursts, carried)
        if estimates is None or len(estimates.kinds) < 2 or estimates.runs > MOST_PHASES:
            if coarse:
                self.why_once = self._why_once(np.where(carried, phases[0].kind_bytes, 0.0))
            return [] if self.why_once else coarse

        once_us = estimates.once_us(self.plan)
        sharing, shared_us = estimates.best()
        together_us = estimates.shared_us(dict.fromkeys(sharing, 0))
        ways = [(together_us, way) for way in coarse]
        if len(set(sharing.values())) > 1:
            of_kinds = estimates.bursts.runs(sharing).phases().phases
            ways.insert(0, (shared_us, _Way(phases=of_kinds, told=_told_groups(sharing)).only(carried)))
        found = [way for taken_us, way in ways if taken_us < once_us or math.isinf(once_us)]
        if ways and not found:
            self.why_once = _told_once(once_us, shared_us)
        return found

    def _estimates(self, bursts: Bursts, carried: NDArray[np.bool_]) -> KindEstimates:
        port_gbps = self.control.circuits_per_gpu * self.control.circuit_gbps
        change_us = self.control.reconfiguration_us
        return KindEstimates(bursts, self._plan, carried, port_gbps=port_gbps, change_us=change_us)

    @property
    def note(self) -> str:
        """Return what a reader should know of how circuits were planned."""
        if self.why_once:
            return f"circuits are set once: {self.why_once}"
        if not self._way.phases:
            return f"circuits are planned after every interval: {self._way.told or _NO_PHASES}"
        return f"circuits are planned at the ends of phases of the job{self._way.told}"

    @property
    def choice(self) -> Hashable:
        """Return what tells these from other circuits of the same job."""
        return self.rule, bool(self.why_once), self._way.told

    def others(self) -> list[PhasedCircuits]:
        """Return the same planned in other ways, to be tried as well.

        Without phases of kinds, and of stages, where there are such; with one plan for the whole job, but
        where it leaves out a pair; after every interval, if that is asked for.
        """
        found = []
        for way in self._fewer:
            other = copy.copy(self)
            other._way, other._fewer = way, []
            found.append(other)
        if not self.why_once and not len(unserved_pairs(self.network, self.plan)):
            once = copy.copy(self)
            once.why_once = "as simulated, that is faster than to change them between phases"
            once._set_once()
            found.append(once)
        if self._by_interval:
            always = copy.copy(self)
            always.why_once, always.interval_us, always._by_interval = "", self.control.interval_us, False
            always._way, always._fewer = _Way(told="as simulated, that is faster than by phase"), []
            found.append(always)
        return found

    def _set_once(self) -> None:
        self.interval_us, self._way, self._fewer = None, _Way(), []

    @property
    def phase_nodes(self) -> tuple[NDArray[np.int32], ...]:
        """Return the nodes with which each phase ends."""
        return tuple(phase.nodes for phase in self._way.phases)

    def begin_phase(self, phase: int) -> None:
        """Take note that so many phases have ended."""
        self._phase, self._begun = phase, True
        if phase < len(self._way.phases):
            self._total_bytes = self._way.phases[phase].added_to(self._total_bytes)

    def on(self, network: Network, estimator: DemandForecast | None = None) -> PhasedCircuits:
        """As of `ScheduledCircuits`."""
        other = super().on(network, estimator)
        assert isinstance(other, PhasedCircuits)
        left = left_circuits(self.network, network)
        other._sent_bytes, other._total_bytes = self._sent_bytes[left], self._total_bytes[left]
        other._way, *other._fewer = (way.on(left, len(self._sent_bytes)) for way in (self._way, *self._fewer))
        return other

    def decide(
        self, now_us: float, sent_bytes: NDArray[np.float64], backlog_bytes: NDArray[np.float64]
    ) -> CircuitSettings | None:
        """Return the capacities of the circuits of the network from `now_us` on; None: leave them."""
        if not self._way.phases:
            return super().decide(now_us, sent_bytes, backlog_bytes)
        if now_us == 0:
            self._sent_bytes = np.zeros(len(sent_bytes))
            self._total_bytes = np.zeros(len(sent_bytes))
            self.begin_phase(0)
            self._begun = False
            self.plan = self._plan_phase(self._left_bytes(), None)
            return self._settings(self.plan, at_start=True)
        self._sent_bytes = self._sent_bytes + sent_bytes
        begun, self._begun = self._begun, False
        waits = backlog_bytes > 0
        unserved = bool((self._gbps_of(self.plan)[waits] <= 0).any())
        demand = np.maximum(self._left_bytes(), backlog_bytes)
        if not demand.any() or not (begun or unserved):
            self.kept += 1
            return None
        new = self._plan(demand, self.plan) if unserved else self._plan_phase(demand, self.plan)
        if unserved and (self._gbps_of(new)[waits] <= 0).any():
            # Too few circuits for all: none may stand idle for what is not yet there.
            new = self._plan(backlog_bytes, self.plan)
        elif not unserved and not self._gains(new, demand):
            self.kept += 1
            return None
        self.plan = new
        self.plans += 1
        return self._settings(new, at_start=False)

    def _plan_phase(self, demand: NDArray[np.float64], previous: CircuitPlan | None) -> CircuitPlan:
        """Return a plan for a demand, with what it leaves idle for the next phase that sends more."""
        following = next((each for each in self._way.phases[self._phase + 1 :] if len(each.circuit)), None)
        # Views and parts of a network number their GPUs in their own ways.
        whole = not isinstance(self.control, (CircuitView, CircuitParts))
        if following is None or not whole or not isinstance(self.scheduler, PlansAhead):
            return self._plan(demand, previous)
        later = circuit_traffic(self.network, following.added_to(np.zeros(len(demand))))
        return self._plan(demand, previous, later)

    def _left_bytes(self) -> NDArray[np.float64]:
        """Return what circuits have to carry until the phase ends. [circuits] [bytes]"""
        left_bytes = self._total_bytes - self._sent_bytes
        return np.where(left_bytes > _ROUNDING * self._total_bytes, left_bytes, 0.0)

    def _gains(self, new: CircuitPlan, demand: NDArray[np.float64]) -> bool:
        """Return whether a plan serves the demand sooner than that in force, the time it is dark included.

        It counts as sooner where the plan in force does not serve all of it.
        """
        keep_us = span_us(demand, self._gbps_of(self.plan))
        return math.isinf(keep_us) or span_us(demand, self._gbps_of(new)) + _dark_us(new) < keep_us

    def _gbps_of(self, plan: CircuitPlan) -> NDArray[np.float64]:
        """Return what a plan gives each circuit of the network. [circuits] [Gbps]"""
        return plan.capacity_gbps(self.network.circuit_src, self.network.circuit_dst)

    def _why_once(self, kind_bytes: NDArray[np.float64]) -> str:
        """Return why the plan for the whole job is better kept; nothing where it is not.

        Compared are the times in which the activations and the gradients of an iteration can be carried,
        each with circuits of its own, which are changed twice, or with those of one plan for the job.
        """
        once_us = sum(span_us(part, self._gbps_of(self.plan)) for part in kind_bytes)
        first = self._plan(kind_bytes[0], None)
        second = self._plan(kind_bytes[1], first)
        again = self._plan(kind_bytes[0], second)
        carried_us = sum(
            span_us(part, self._gbps_of(plan)) for part, plan in zip(kind_bytes, (first, second), strict=True)
        )
        dark_us = _dark_us(second) + _dark_us(again)
        if math.isinf(once_us) or carried_us + dark_us < once_us:
            return ""
        return _told_once(once_us, carried_us + dark_us)


def _dark_us(plan: CircuitPlan) -> float:
    """Return how long the last of the circuits that a plan changes is dark. [us]"""
    assert plan.dark_us is not None
    return float(plan.dark_us.max(initial=0.0))


def _told_once(once_us: float, changing_us: float) -> str:
    """Return why circuits are set once, from two estimates."""
    return (
        f"by estimate transfers of an iteration take {format_us(once_us)} so, "
        f"{format_us(changing_us)} with circuits that change between phases"
    )


def _told_groups(sharing: Sharing) -> str:
    """Return the kinds that share circuits; all that are sent for the same reasons by these alone.

    >>> _told_groups({0b001: 0, 0b010: 1, 0b101: 0, 0b001 + 32: 0, 0b010 + 32: 0})
    ': pipeline (2) or tensor or tensor and expert, pipeline, gradient'
    """
    groups_of: dict[int, set[int]] = {}
    for kind, group in sharing.items():
        groups_of.setdefault(reasons_of(kind), set()).add(group)
    told: dict[int, dict[str, None]] = {group: {} for group in sorted(set(sharing.values()))}
    for kind, group in sorted(sharing.items()):
        together = len(groups_of[reasons_of(kind)]) == 1
        told[group][kind_told(reasons_of(kind) if together else kind)] = None
    return ": " + ", ".join([*(" or ".join(sorted(names)) for names in told.values()), "gradient"])
