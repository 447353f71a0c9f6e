"""The phases of a job: what is sent in each, and with which nodes it ends."""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import frozen
from sipml_core.model import GRADIENT, Network, TaskGraph


@frozen(kw_only=True, eq=False)
class JobPhase:
    """A part of a job: it begins when the one before has ended."""

    #: It ends when the last of these nodes has.
    nodes: NDArray[np.int32]
    #: Circuits that have more to carry from its beginning on, and how much. [circuits], [circuits] [bytes]
    circuit: NDArray[np.intp]
    more_bytes: NDArray[np.float64]

    @classmethod
    def of(cls, nodes: NDArray[np.integer], more_bytes: NDArray[np.float64]) -> JobPhase:
        """Return a phase from what each circuit of the network has more to carry."""
        circuit = np.flatnonzero(more_bytes)
        return cls(nodes=nodes.astype(np.int32), circuit=circuit, more_bytes=more_bytes[circuit])

    def on(self, left: NDArray[np.intp], circuits: int) -> JobPhase:
        """Return the same on a network that has only some of so many circuits, `left`."""
        place = np.full(circuits, -1)
        place[left] = np.arange(len(left))
        own = place[self.circuit] >= 0
        return attrs.evolve(self, circuit=place[self.circuit[own]], more_bytes=self.more_bytes[own])

    def added_to(self, total_bytes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what circuits have to carry with this phase. [circuits]"""
        total_bytes = total_bytes.copy()
        total_bytes[self.circuit] += self.more_bytes
        return total_bytes


@frozen(kw_only=True, eq=False)
class JobPhases:
    """The phases of a job in their order; none where its iterations have no two."""

    phases: tuple[JobPhase, ...] = ()
    #: What activations, and gradients, ask of each circuit in an iteration. [2, circuits] [bytes]
    kind_bytes: NDArray[np.float64] = attrs.Factory(lambda: np.zeros((2, 0)))


@frozen(kw_only=True, eq=False)
class TransferParts:
    """Which part of a job each transfer belongs to."""

    #: From 0. [transfers]
    iteration: NDArray[np.int64]
    #: Pipeline stage of the sender; None: stages are not told apart. [transfers]
    stage: NDArray[np.int64] | None = None
    #: Whether kinds of traffic are told apart, in each stage for itself; else where its gradients begin.
    by_kind: bool = False
    #: Whether plans after every interval are tried as well.
    by_interval: bool = False


def circuit_bytes(network: Network, tasks: TaskGraph, sent: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return what chosen transfers ask of each circuit. [circuits] [bytes]"""
    return network.link_bytes(np.where(sent, tasks.size_bytes, 0.0))[network.first_circuit :]


def all_job_phases(network: Network, tasks: TaskGraph, parts: TransferParts) -> tuple[JobPhases, ...]:
    """Return the phases of a job with those of stages, if these are told apart, and without."""
    plain = attrs.evolve(parts, stage=None)
    several = parts.stage is not None and bool((parts.stage != parts.stage[:1]).any())
    return tuple(job_phases(network, tasks, each) for each in ([parts, plain] if several else [plain]))


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
    ...     print(phase.nodes.tolist(), phase.circuit.tolist(), phase.more_bytes.tolist())
    [1] [0] [8.0]
    [2] [1] [4.0]
    [3] [] []
    """
    iteration = parts.iteration
    if tasks.kind is None or not len(iteration):
        return JobPhases()
    stage = np.zeros_like(iteration) if parts.stage is None else parts.stage
    gradient, iterations = tasks.kind == GRADIENT, int(iteration.max()) + 1
    phases: list[JobPhase] = []
    for number in range(iterations):
        now = iteration == number
        activations, gradients = np.flatnonzero(now & ~gradient), np.flatnonzero(now & gradient)
        if not len(activations) or not len(gradients):
            return JobPhases()

        # Nodes with which each phase ends, and transfers that it has beside those of the phases before.
        ends, more = [], now & ~gradient
        for each in sorted(set(stage[gradients].tolist()), reverse=True):
            of_stage = gradients[stage[gradients] == each]
            first = of_stage[np.argmin(tasks.priority[tasks.compute_tasks + of_stage])]
            before = _predecessors(tasks, tasks.compute_tasks + int(first))
            if len(before):
                ends.append((before, more))
                more = np.zeros_like(more)
            more = more.copy()
            more[of_stage] = True
        ends.append((tasks.compute_tasks + activations, more))
        ends.append((tasks.compute_tasks + gradients, np.zeros_like(more)))
        phases += [JobPhase.of(nodes, circuit_bytes(network, tasks, sent)) for nodes, sent in ends]
    kinds = [circuit_bytes(network, tasks, sent) for sent in (~gradient, gradient)]
    return JobPhases(phases=tuple(phases), kind_bytes=np.array(kinds) / iterations)


def _predecessors(tasks: TaskGraph, node: int) -> NDArray[np.intp]:
    """Return the nodes that a node waits for."""
    return np.searchsorted(tasks.succ_start, np.flatnonzero(tasks.successors == node), side="right") - 1
