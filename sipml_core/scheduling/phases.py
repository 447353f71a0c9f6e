"""Circuits planned for what a phase of the job sends, and planned again when it has ended."""

from __future__ import annotations

import copy
import math
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import format_us
from sipml_core.model import CircuitParts, CircuitPlan, CircuitView, Network
from sipml_core.plugin import DemandForecast, PlansAhead
from sipml_core.scheduling.ahead import WithNext
from sipml_core.scheduling.driver import (
    ScheduledCircuits,
    circuit_traffic,
    left_circuits,
    unserved_pairs,
)
from sipml_core.scheduling.jobphases import JobPhases, Phase
from sipml_core.scheduling.kindchoice import KindEstimates, Sharing, span_us
from sipml_core.scheduling.kindphases import MOST_PHASES, Bursts, kinds_told

if TYPE_CHECKING:
    from sipml_core.engine import CircuitSettings

#: Why circuits are not planned by phase where a job has none.
_NO_PHASES = "no iteration sends both activations and gradients"
#: What is left of a circuit's bytes below this part of them is rounding.
_ROUNDING = 1e-9


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
        See `job_phases`.
    bursts
        Of the job: kinds of activations have phases of their own where that is faster by estimate; None: they
        have not.
    """

    def __init__(self, *, phases: JobPhases, bursts: Bursts | None = None, **scheduled: Any) -> None:
        super().__init__(**scheduled)
        carried = scheduled["total_bytes"] > 0  # what goes by packets is planned for in no phase
        self._phases = _of_circuits(phases.phases, carried)
        #: Phases that have ended, and whether one has since the last decision.
        self._phase = 0
        self._begun = False
        #: What circuits have carried, and what they have to carry until the phase ends. [circuits] [bytes]
        self._sent_bytes = np.zeros(len(self.network.circuit_src))
        self._total_bytes = np.zeros_like(self._sent_bytes)
        self.why_once = ""
        if phases.phases:
            self.why_once = self._why_once(np.where(carried, phases.kind_bytes, 0.0))
        elif not len(unserved_pairs(self.network, self.plan)):
            self.why_once = _NO_PHASES
        if self.why_once:
            self._set_once()
        #: Kinds that share circuits, told; and the same without that.
        self._kinds: tuple[str, ...] = ()
        self._coarser: PhasedCircuits | None = None
        sharing = None if bursts is None else self._sharing(bursts, carried)
        if bursts is not None and sharing is not None:
            self._coarser = copy.copy(self)
            self.why_once, self.interval_us = "", self.control.interval_us
            self._phases = _of_circuits(bursts.runs(sharing).phases().phases, carried)
            groups = sorted(set(sharing.values()))
            self._kinds = tuple(
                kinds_told(int(np.bitwise_or.reduce([kinds for kinds, at in sharing.items() if at == each])))
                for each in groups
            )

    @property
    def note(self) -> str:
        """Return what a reader should know of how circuits were planned."""
        if self.why_once:
            return f"circuits are set once: {self.why_once}"
        if not self._phases:
            return f"circuits are planned after every interval: {_NO_PHASES}"
        told = f": {', '.join((*self._kinds, 'gradient'))}" if self._kinds else ""
        return f"circuits are planned at the ends of phases of the job{told}"

    @property
    def choice(self) -> Hashable:
        """Return what tells these from other circuits of the same job."""
        return self.rule, bool(self.why_once), self._kinds

    def others(self) -> tuple[PhasedCircuits, ...]:
        """Return the same with fewer plans, to be tried as well.

        Without phases of kinds, where there are such; and with one plan for the whole job, but where it
        leaves out a pair.
        """
        if self._coarser is not None:
            coarser = copy.copy(self._coarser)
            return (coarser, *coarser.others())
        if self.why_once or len(unserved_pairs(self.network, self.plan)):
            return ()
        once = copy.copy(self)
        once.why_once = "as simulated, that is faster than to change them between phases"
        once._set_once()
        return (once,)

    def _set_once(self) -> None:
        self.interval_us, self._phases = None, ()

    @property
    def phase_nodes(self) -> tuple[NDArray[np.int32], ...]:
        """Return the nodes with which each phase ends."""
        return tuple(phase.nodes for phase in self._phases)

    def begin_phase(self, phase: int) -> None:
        """Take note that so many phases have ended."""
        self._phase, self._begun = phase, True
        if phase < len(self._phases):
            self._total_bytes = self._phases[phase].added_to(self._total_bytes)

    def on(self, network: Network, estimator: DemandForecast | None = None) -> PhasedCircuits:
        """As of `ScheduledCircuits`."""
        other = super().on(network, estimator)
        assert isinstance(other, PhasedCircuits)
        left = left_circuits(self.network, network)
        other._sent_bytes, other._total_bytes = self._sent_bytes[left], self._total_bytes[left]
        other._phases = tuple(phase.on(left, len(self._sent_bytes)) for phase in self._phases)
        other._coarser = self._coarser and self._coarser.on(network, estimator)
        return other

    def decide(
        self, now_us: float, sent_bytes: NDArray[np.float64], backlog_bytes: NDArray[np.float64]
    ) -> CircuitSettings | None:
        """Return the capacities of the circuits of the network from `now_us` on; None: leave them."""
        if not self._phases:
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
        new = self._plan_phase(demand, self.plan)
        if unserved and (self._gbps_of(new)[waits] <= 0).any():
            # Too few circuits for all: none may stand idle for what is not yet there.
            new = self._plan_phase(backlog_bytes, self.plan)
        elif not unserved and not self._gains(new, demand):
            self.kept += 1
            return None
        self.plan = new
        self.plans += 1
        return self._settings(new, at_start=False)

    def _plan_phase(self, demand: NDArray[np.float64], previous: CircuitPlan | None) -> CircuitPlan:
        """Return a plan for a demand, with what it leaves idle for the next phase that sends more."""
        following = next((each for each in self._phases[self._phase + 1 :] if len(each.circuit)), None)
        # Views and parts of a network number their GPUs in their own ways.
        whole = not isinstance(self.control, (CircuitView, CircuitParts))
        if following is None or not whole or not isinstance(self.scheduler, PlansAhead):
            return self._plan(demand, previous)
        later = circuit_traffic(self.network, following.added_to(np.zeros(len(demand))))
        return self._plan(demand, previous, WithNext(self.scheduler, later))

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
        return (
            f"by estimate transfers of an iteration take {format_us(once_us)} so, "
            f"{format_us(carried_us + dark_us)} with circuits that change between phases"
        )

    def _sharing(self, bursts: Bursts, carried: NDArray[np.bool_]) -> Sharing | None:
        """Return which kinds share circuits if several phases of activations are faster, by estimate."""
        estimates = KindEstimates(bursts, self._plan, carried)
        apart = {kinds: kinds for kinds in estimates.kinds}
        if len(apart) < 2 or bursts.runs(apart).count > MOST_PHASES:
            return None
        sharing, shared_us = estimates.best()
        if len(set(sharing.values())) < 2 or shared_us >= estimates.once_us(self.plan):
            return None
        return sharing


def _of_circuits(phases: tuple[Phase, ...], carried: NDArray[np.bool_]) -> tuple[Phase, ...]:
    """Return phases without the bytes of circuits that carry nothing."""
    if carried.all():
        return phases
    return tuple(
        attrs.evolve(phase, circuit=phase.circuit[own], more_bytes=phase.more_bytes[own])
        for phase in phases
        for own in [carried[phase.circuit]]
    )


def _dark_us(plan: CircuitPlan) -> float:
    """Return how long the last of the circuits that a plan changes is dark. [us]"""
    assert plan.dark_us is not None
    return float(plan.dark_us.max(initial=0.0))
