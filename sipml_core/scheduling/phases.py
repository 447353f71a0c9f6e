"""Circuits planned for what a phase of the job sends, and planned again when it has ended."""

from __future__ import annotations

import copy
import math
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import BYTES_PER_US_PER_GBPS, format_us
from sipml_core.model import GRADIENT, CircuitPlan, Network, TaskGraph
from sipml_core.plugin import DemandForecast
from sipml_core.scheduling.driver import ScheduledCircuits, left_circuits, unserved_pairs

if TYPE_CHECKING:
    from sipml_core.engine import CircuitSettings

#: Why circuits are not planned by phase where a job has none.
_NO_PHASES = "no iteration sends both activations and gradients"
#: What is left of a circuit's bytes below this part of them is rounding.
_ROUNDING = 1e-9


@attrs.frozen(kw_only=True, eq=False)
class Phase:
    """A part of a job: it begins when the one before has ended."""

    #: It ends when the last of these nodes has.
    nodes: NDArray[np.int32]
    #: What each circuit has carried at its end, if nothing of later phases was sent. [circuits] [bytes]
    total_bytes: NDArray[np.float64]


@attrs.frozen(kw_only=True, eq=False)
class JobPhases:
    """The phases of a job in their order; none where its iterations have no two."""

    phases: tuple[Phase, ...] = ()
    #: What activations, and gradients, ask of each circuit in an iteration. [2, circuits] [bytes]
    kind_bytes: NDArray[np.float64] = attrs.Factory(lambda: np.zeros((2, 0)))


@attrs.frozen(kw_only=True, eq=False)
class TransferParts:
    """Which part of a job each transfer belongs to."""

    #: From 0. [transfers]
    iteration: NDArray[np.int64]
    #: Pipeline stage of the sender; None: stages are not told apart. [transfers]
    stage: NDArray[np.int64] | None = None


def job_phases(network: Network, tasks: TaskGraph, parts: TransferParts) -> JobPhases:
    """Return the phases of a job.

    Three in each iteration: activations, until its first gradients are ready; both, until the last activation
    has arrived; gradients, until the last of these has. Activations are all transfers that are not gradients.
    Where stages are told apart, there is a phase until the first gradients of each are ready, the last stage
    first, which goes backwards first; in it gradients of stages that are not yet so far count for nothing.

    Examples
    --------
    Task 0 makes an activation, node 2, for task 1, which makes a gradient, node 3: the first phase ends with
    task 1. GPU 0 sends to 1 and 1 to 2.

    >>> from sipml_core.model import TENSOR, CircuitControl, Fabric, TaskBuilder
    >>> builder = TaskBuilder(3)
    >>> task = builder.tasks([0, 1], 5.0, 0, 0)
    >>> sent = builder.transfers([0, 1], [1, 2], [8.0, 4.0], [0, 1], kind=[TENSOR, GRADIENT])
    >>> builder.depend(task, sent), builder.depend(sent[0], task[1])
    (None, None)
    >>> tasks = builder.build()
    >>> control = CircuitControl(gpus=3, circuit_gbps=10.0, circuits_per_gpu=1)
    >>> network = Network.of(Fabric.with_ports(circuits=control, port_gbps=10.0), tasks)
    >>> parts = TransferParts(iteration=np.zeros(2, dtype=np.int64))
    >>> for phase in job_phases(network, tasks, parts).phases:
    ...     print(phase.nodes.tolist(), phase.total_bytes.tolist())
    [1] [8.0, 0.0]
    [2] [8.0, 4.0]
    [3] [8.0, 4.0]
    """
    iteration = parts.iteration
    if tasks.kind is None or not len(iteration):
        return JobPhases()
    stage = np.zeros_like(iteration) if parts.stage is None else parts.stage

    def circuit_bytes(sent: NDArray[np.bool_]) -> NDArray[np.float64]:
        return network.link_bytes(np.where(sent, tasks.size_bytes, 0.0))[network.first_circuit :]

    gradient, iterations = tasks.kind == GRADIENT, int(iteration.max()) + 1
    phases: list[Phase] = []
    for number in range(iterations):
        # Transfers of this iteration, and those of this one and of all before it.
        activations = np.flatnonzero((iteration == number) & ~gradient)
        gradients = np.flatnonzero((iteration == number) & gradient)
        if not len(activations) or not len(gradients):
            return JobPhases()
        sent = (iteration < number) | ((iteration == number) & ~gradient)
        after = iteration <= number
        ends = []
        for each in sorted(set(stage[gradients].tolist()), reverse=True):
            of_stage = gradients[stage[gradients] == each]
            first = of_stage[np.argmin(tasks.priority[tasks.compute_tasks + of_stage])]
            ends.append((_predecessors(tasks, tasks.compute_tasks + int(first)), sent.copy()))
            sent[of_stage] = True
        ends += [(tasks.compute_tasks + activations, after), (tasks.compute_tasks + gradients, after)]
        phases += [
            Phase(nodes=nodes.astype(np.int32), total_bytes=circuit_bytes(sent))
            for nodes, sent in ends
            if len(nodes)
        ]
    kind_bytes = np.array([circuit_bytes(~gradient), circuit_bytes(gradient)]) / iterations
    return JobPhases(phases=tuple(phases), kind_bytes=kind_bytes)


def _predecessors(tasks: TaskGraph, node: int) -> NDArray[np.intp]:
    """Return the nodes that a node waits for."""
    return np.searchsorted(tasks.succ_start, np.flatnonzero(tasks.successors == node), side="right") - 1


class PhasedCircuits(ScheduledCircuits):
    """Drives a scheduler from the ends of a job's phases, for what the next one has left to send.

    Before the run `plan` is for the whole job. At time 0 it is that of the first phase. Between the ends of
    phases the scheduler is asked after every interval in which a pair waits without a circuit. Circuits are
    set once, for the whole job, where by estimate that takes no longer. A job without phases is planned for
    by interval if one plan cannot serve every pair.

    Parameters
    ----------
    phases
        See `job_phases`.
    """

    def __init__(self, *, phases: JobPhases, **scheduled: Any) -> None:
        super().__init__(**scheduled)
        carried = scheduled["total_bytes"] > 0  # what goes by packets is planned for in no phase
        self._phases = tuple(
            attrs.evolve(phase, total_bytes=np.where(carried, phase.total_bytes, 0.0))
            for phase in phases.phases
        )
        #: Phases that have ended, and whether one has since the last decision.
        self._phase = 0
        self._begun = False
        self._sent_bytes = np.zeros(len(self.network.circuit_src))
        self.why_once = ""
        if phases.phases:
            self.why_once = self._why_once(np.where(carried, phases.kind_bytes, 0.0))
        elif not len(unserved_pairs(self.network, self.plan)):
            self.why_once = _NO_PHASES
        if self.why_once:
            self._set_once()

    @property
    def note(self) -> str:
        """Return what a reader should know of how circuits were planned."""
        if self.why_once:
            return f"circuits are set once: {self.why_once}"
        if not self._phases:
            return f"circuits are planned after every interval: {_NO_PHASES}"
        return "circuits are planned at the ends of phases of the job"

    @property
    def choice(self) -> Hashable:
        """Return what tells these from other circuits of the same job."""
        return self.rule, bool(self.why_once)

    def set_once(self) -> PhasedCircuits | None:
        """Return the same with one plan for the whole job; None: they are that, or it leaves out a pair."""
        if self.why_once or len(unserved_pairs(self.network, self.plan)):
            return None
        other = copy.copy(self)
        other.why_once = "as simulated, that is faster than to change them between phases"
        other._set_once()
        return other

    def _set_once(self) -> None:
        self.interval_us, self._phases = None, ()

    @property
    def phase_nodes(self) -> tuple[NDArray[np.int32], ...]:
        """Return the nodes with which each phase ends."""
        return tuple(phase.nodes for phase in self._phases)

    def begin_phase(self, phase: int) -> None:
        """Take note that so many phases have ended."""
        self._phase, self._begun = phase, True

    def on(self, network: Network, estimator: DemandForecast | None = None) -> PhasedCircuits:
        """As of `ScheduledCircuits`."""
        other = super().on(network, estimator)
        assert isinstance(other, PhasedCircuits)
        left = left_circuits(self.network, network)
        other._sent_bytes = self._sent_bytes[left]
        other._phases = tuple(
            attrs.evolve(phase, total_bytes=phase.total_bytes[left]) for phase in self._phases
        )
        return other

    def decide(
        self, now_us: float, sent_bytes: NDArray[np.float64], backlog_bytes: NDArray[np.float64]
    ) -> CircuitSettings | None:
        """Return the capacities of the circuits of the network from `now_us` on; None: leave them."""
        if not self._phases:
            return super().decide(now_us, sent_bytes, backlog_bytes)
        if now_us == 0:
            self._begun, self._sent_bytes = False, np.zeros(len(sent_bytes))
            self.plan = self._plan(self._left_bytes(), None)
            return self._settings(self.plan, at_start=True)
        self._sent_bytes = self._sent_bytes + sent_bytes
        begun, self._begun = self._begun, False
        waits = backlog_bytes > 0
        unserved = bool((self._gbps_of(self.plan)[waits] <= 0).any())
        demand = np.maximum(self._left_bytes(), backlog_bytes)
        if not demand.any() or not (begun or unserved):
            self.kept += 1
            return None
        new = self._plan(demand, self.plan)
        if unserved and (self._gbps_of(new)[waits] <= 0).any():
            # Too few circuits for all: none may stand idle for what is not yet there.
            new = self._plan(backlog_bytes, self.plan)
        elif not unserved and not self._gains(new, demand):
            self.kept += 1
            return None
        self.plan = new
        self.plans += 1
        return self._settings(new, at_start=False)

    def _left_bytes(self) -> NDArray[np.float64]:
        """Return what circuits have to carry until the phase ends. [circuits] [bytes]"""
        total_bytes = self._phases[min(self._phase, len(self._phases) - 1)].total_bytes
        left_bytes = total_bytes - self._sent_bytes
        return np.where(left_bytes > _ROUNDING * total_bytes, left_bytes, 0.0)

    def _gains(self, new: CircuitPlan, demand: NDArray[np.float64]) -> bool:
        """Return whether a plan serves the demand sooner than that in force, the time it is dark included.

        It counts as sooner where the plan in force does not serve all of it.
        """
        keep_us = _span_us(demand, self._gbps_of(self.plan))
        return math.isinf(keep_us) or _span_us(demand, self._gbps_of(new)) + _dark_us(new) < keep_us

    def _gbps_of(self, plan: CircuitPlan) -> NDArray[np.float64]:
        """Return what a plan gives each circuit of the network. [circuits] [Gbps]"""
        return plan.capacity_gbps(self.network.circuit_src, self.network.circuit_dst)

    def _why_once(self, kind_bytes: NDArray[np.float64]) -> str:
        """Return why the plan for the whole job is better kept; nothing where it is not.

        Compared are the times in which the activations and the gradients of an iteration can be carried,
        each with circuits of its own, which are changed twice, or with those of one plan for the job.
        """
        once_us = sum(_span_us(part, self._gbps_of(self.plan)) for part in kind_bytes)
        first = self._plan(kind_bytes[0], None)
        second = self._plan(kind_bytes[1], first)
        again = self._plan(kind_bytes[0], second)
        carried_us = sum(
            _span_us(part, self._gbps_of(plan))
            for part, plan in zip(kind_bytes, (first, second), strict=True)
        )
        dark_us = _dark_us(second) + _dark_us(again)
        if math.isinf(once_us) or carried_us + dark_us < once_us:
            return ""
        return (
            f"by estimate transfers of an iteration take {format_us(once_us)} so, "
            f"{format_us(carried_us + dark_us)} with circuits that change between phases"
        )


def _span_us(demand: NDArray[np.float64], gbps: NDArray[np.float64]) -> float:
    """Return the time in which all circuits have carried what is asked of them. [us]

    >>> _span_us(np.array([2500.0, 0.0]), np.array([10.0, 0.0])), _span_us(np.ones(1), np.zeros(1))
    (2.0, inf)
    """
    asked = demand > 0
    if not (gbps[asked] > 0).all():
        return math.inf
    return float((demand[asked] / gbps[asked]).max(initial=0.0)) / BYTES_PER_US_PER_GBPS


def _dark_us(plan: CircuitPlan) -> float:
    """Return how long the last of the circuits that a plan changes is dark. [us]"""
    assert plan.dark_us is not None
    return float(plan.dark_us.max(initial=0.0))
