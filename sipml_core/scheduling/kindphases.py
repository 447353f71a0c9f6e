"""Phases of a job by the kind of what its GPUs send: activations of experts, stages, tensors, and gradients.

A *burst* is what a pipeline stage sends while, on an ideal switch, something of it is under way all the time:
the exchange of a layer, say. Its *kind* is for what reasons it is sent (tensors, experts, ...), and between
which pairs. Bursts of one kind, or of kinds that share circuits, follow each other in one *run*. The end of
each run is the end of a phase.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import frozen
from sipml_core.model import GRADIENT, TRAFFIC_KINDS, Network, TaskGraph, Timeline, ranges
from sipml_core.scheduling.driver import moved_part
from sipml_core.scheduling.jobphases import JobPhase, JobPhases, TransferParts

#: A job is not divided into more phases than this.
MOST_PHASES = 20_000
#: Times closer than this, relatively, are the same.
_SAME_TIME = 1e-9
#: Bursts are of one kind if no more than this part of what one asks for is for other circuits; a stage has no
#: more kinds than this that are sent for the same reasons.
_MOVED = 0.25
_MOST_ALIKE = 4
#: Bits of a kind that say why it is sent; those above tell it from others for the same reasons.
_REASONS = len(TRAFFIC_KINDS)


@frozen(kw_only=True, eq=False)
class Bursts:
    """The bursts of a job, stage by stage and in order of time; gradients are in none."""

    network: Network
    tasks: TaskGraph
    parts: TransferParts
    #: When each transfer becomes ready on an ideal switch, and when it has arrived. [transfers] [us]
    ready_us: NDArray[np.float64]
    end_us: NDArray[np.float64]
    #: Transfers in the order of bursts, and the first of each burst. [activations], [bursts + 1]
    transfer: NDArray[np.intp]
    first: NDArray[np.intp]
    #: Stage and iteration of each burst; why it is sent, a bit for each of `TRAFFIC_KINDS`. [bursts]
    stage: NDArray[np.int64]
    iteration: NDArray[np.int64]
    reasons: NDArray[np.int64]

    @classmethod
    def of(cls, network: Network, tasks: TaskGraph, parts: TransferParts, ideal: Timeline) -> Bursts:
        """Return the bursts of a job, of which `ideal` is a run in which circuits are no limit.

        Examples
        --------
        GPU 0 sends a tensor to 1 until 8 us, and at 9 us, when a task has ended, to an expert on 2 and a
        tensor to 1 at once.

        >>> from sipml_core.engine import simulate
        >>> from sipml_core.model import EXPERT, TENSOR, CircuitControl, Fabric, TaskBuilder
        >>> builder = TaskBuilder(3)
        >>> kinds = [TENSOR, EXPERT, TENSOR]
        >>> sent = builder.transfers([0, 0, 0], [1, 2, 1], [10e3, 10e3, 5e3], 0, kind=kinds)
        >>> task = builder.tasks([0], 1.0, 0, 0)
        >>> builder.depend(sent[:1], task), builder.depend(task[[0, 0]], sent[1:])
        (None, None)
        >>> tasks = builder.build()
        >>> control = CircuitControl(gpus=3, circuit_gbps=10.0, circuits_per_gpu=1)
        >>> network = Network.of(Fabric.with_ports(circuits=control, port_gbps=10.0), tasks)
        >>> parts = TransferParts(iteration=np.zeros(3, dtype=np.int64))
        >>> found = Bursts.of(network, tasks, parts, simulate(tasks, network.with_ports_only()))
        >>> found.transfer.tolist(), found.first.tolist(), [kind_told(k) for k in found.kind.tolist()]
        ([0, 1, 2], [0, 1, 3], ['tensor', 'tensor and expert'])
        """
        assert tasks.kind is not None
        ready_us, end_us = ideal.start_us[tasks.compute_tasks :], ideal.end_us[tasks.compute_tasks :]
        own = np.flatnonzero(tasks.kind != GRADIENT)
        stage = np.zeros_like(parts.iteration) if parts.stage is None else parts.stage
        transfer = own[np.lexsort((ready_us[own], stage[own]))]

        # One begins where all that the stage has sent before has arrived. [activations]
        begins = np.ones(len(transfer), dtype=np.bool_)
        for each in set(stage[transfer].tolist()):
            mine = np.flatnonzero(stage[transfer] == each)
            arrived_us = np.maximum.accumulate(end_us[transfer[mine]])
            begins[mine[1:]] = ready_us[transfer[mine[1:]]] >= arrived_us[:-1] * (1 - _SAME_TIME)
        first = np.flatnonzero(begins)
        bits = np.left_shift(1, tasks.kind[transfer].astype(np.int64))
        return cls(
            network=network, tasks=tasks, parts=parts, ready_us=ready_us, end_us=end_us,
            transfer=transfer, first=np.append(first, len(transfer)), stage=stage[transfer[first]],
            iteration=parts.iteration[transfer[first]],
            reasons=np.bitwise_or.reduceat(bits, first) if len(first) else bits,
        )  # fmt: skip

    @cached_property
    def gradients(self) -> NDArray[np.intp]:
        """Return the transfers that are gradients."""
        return np.flatnonzero(self.tasks.kind == GRADIENT)

    def asked(self) -> tuple[NDArray[np.intp], NDArray[np.float64], NDArray[np.intp]]:
        """Return circuits by burst, the bytes that it asks of each, and where each burst begins."""
        burst = np.full(self.tasks.transfers, -1)
        burst[self.transfer] = np.repeat(np.arange(len(self.reasons)), np.diff(self.first))
        return _by_phase(self.network, self.tasks, burst, len(self.reasons))

    @cached_property
    def kind(self) -> NDArray[np.int64]:
        """Return the kind of each burst: that of the first like it in its stage, or of the nearest. [bursts]

        In the order in which they come, kinds of a stage that are sent for the same reasons have the numbers
        0, 1, ... above the bits of these.
        """
        circuit, asked_bytes, start = self.asked()
        found = self.reasons.copy()
        first_of: dict[tuple[int, int], list[NDArray[np.float64]]] = {}
        known: dict[tuple[int, int, bytes, bytes], int] = {}
        rounded = asked_bytes.astype(np.float32)
        for burst, (a, b) in enumerate(_spans(start)):
            where = int(self.stage[burst]), int(self.reasons[burst])
            same = (*where, circuit[a:b].tobytes(), rounded[a:b].tobytes())
            if same not in known:
                demand = np.zeros(len(self.network.circuit_src))
                demand[circuit[a:b]] = asked_bytes[a:b]
                firsts = first_of.setdefault(where, [])
                moved = [moved_part(each, demand) for each in firsts]
                if not moved or (min(moved) > _MOVED and len(firsts) < _MOST_ALIKE):
                    moved.append(0.0)
                    firsts.append(demand)
                known[same] = moved.index(min(moved))
            found[burst] += known[same] << _REASONS
        return found

    def runs(self, circuits_of: Mapping[int, int]) -> Runs:
        """Return the runs of bursts of kinds that share circuits: those with the same number in a table."""
        shared = np.array([circuits_of[kind] for kind in self.kind.tolist()], dtype=np.int64)
        key = np.stack([self.stage, self.iteration, shared])
        first = np.flatnonzero(np.append(True, (np.diff(key) != 0).any(axis=0)))
        last = np.append(first[1:], len(shared)) - 1
        begin_us = self.ready_us[self.transfer[self.first[first]]]
        # Bursts end one after the other.
        end_us = np.maximum.reduceat(self.end_us[self.transfer], self.first[:-1])[last]
        return Runs(bursts=self, first=np.append(first, len(shared)), begin_us=begin_us, end_us=end_us)


@frozen(kw_only=True, eq=False)
class Runs:
    """Bursts that share circuits, stage by stage and in order of time."""

    bursts: Bursts
    #: First burst of each run. [runs + 1]
    first: NDArray[np.intp]
    #: On an ideal switch. [runs] [us]
    begin_us: NDArray[np.float64]
    end_us: NDArray[np.float64]

    @property
    def count(self) -> int:
        return len(self.begin_us)

    def phases(self) -> JobPhases:
        """Return the phases that end with these runs, and with the gradients of each iteration.

        In the order of their ends on an ideal switch. What a run sends counts from the end of the one before
        of its stage and iteration; what a first run sends, and a gradient, from the end of the last phase
        that has ended when it becomes ready there. So all that the end of a phase waits for counts in that
        phase, or from an earlier one on: it was ready on the ideal switch before the phase ended.
        """
        bursts = self.bursts
        stage, iteration = bursts.stage[self.first[:-1]], bursts.iteration[self.first[:-1]]
        gradients = bursts.gradients
        of_gradient = bursts.parts.iteration[gradients]
        iterations = np.unique(of_gradient)
        done_us = np.array([bursts.end_us[gradients[of_gradient == each]].max() for each in iterations])

        # Number of the phase that ends with each run, and with the gradients of each iteration.
        all_us = np.concatenate([self.end_us, done_us])
        order = np.argsort(all_us, kind="stable")
        number = np.empty_like(order)
        number[order] = np.arange(len(order))
        ends_us = all_us[order]

        # Phase from which on each run counts, each of its transfers, and each gradient.
        begins = _ended(ends_us, self.begin_us)
        follows = (np.diff(stage) == 0) & (np.diff(iteration) == 0)
        begins[1:] = np.where(follows, number[: self.count - 1] + 1, begins[1:])
        begins = np.minimum(begins, number[: self.count])
        sizes = np.diff(bursts.first[self.first])
        since = np.full(bursts.tasks.transfers, -1)
        since[bursts.transfer] = np.repeat(begins, sizes)
        last = number[self.count :][np.searchsorted(iterations, of_gradient)]
        since[gradients] = np.minimum(_ended(ends_us, bursts.ready_us[gradients]), last)

        nodes = [bursts.transfer[a:b] for a, b in _spans(bursts.first[self.first])]
        nodes += [gradients[of_gradient == each] for each in iterations]
        circuit, more_bytes, start = _by_phase(bursts.network, bursts.tasks, since, len(order))
        phases = tuple(
            JobPhase(
                nodes=(bursts.tasks.compute_tasks + nodes[which]).astype(np.int32),
                circuit=circuit[a:b],
                more_bytes=more_bytes[a:b],
            )
            for which, (a, b) in zip(order.tolist(), _spans(start), strict=True)
        )
        return JobPhases(phases=phases)


def reasons_of(kind: int) -> int:
    """Return why a kind of burst is sent.

    >>> reasons_of(0b101 + (1 << 5))
    5
    """
    return kind % (1 << _REASONS)


def kind_told(kind: int) -> str:
    """Return a kind of burst in words.

    >>> kind_told(0b101), kind_told(0b101 + (1 << 5))
    ('tensor and expert', 'tensor and expert (2)')
    """
    told = " and ".join(reason for bit, reason in enumerate(TRAFFIC_KINDS) if kind >> bit & 1)
    number = kind >> _REASONS
    return f"{told} ({number + 1})" if number else told


def _ended(ends_us: NDArray[np.float64], at_us: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return how many phases, which end at these times, have ended.

    >>> _ended(np.array([2.0, 5.0]), np.array([0.0, 2.0, 6.0])).tolist()
    [0, 1, 2]
    """
    return np.searchsorted(ends_us * (1 - _SAME_TIME), at_us, side="right")


def _spans(start: NDArray[np.intp]) -> list[tuple[int, int]]:
    """Return begin and end of each part.

    >>> _spans(np.array([0, 2, 5]))
    [(0, 2), (2, 5)]
    """
    return list(zip(start[:-1].tolist(), start[1:].tolist(), strict=True))


def _by_phase(
    network: Network, tasks: TaskGraph, since: NDArray[np.intp], phases: int
) -> tuple[NDArray[np.intp], NDArray[np.float64], NDArray[np.intp]]:
    """Return circuits by phase, each once, and the bytes that count on it from that phase on.

    Parameters
    ----------
    since
        Phase from which on each transfer counts; -1: it does not. [transfers]

    Returns
    -------
    Circuit and bytes, [entries], and the first entry of each phase, [phases + 1].
    """
    # Each phase and pair once, and what it sends; then each phase and circuit once.
    pairs, circuits = len(network.pair_src), len(network.circuit_src)
    counts = np.flatnonzero(since >= 0)
    key, entry = np.unique(since[counts] * pairs + network.transfer_pair[counts], return_inverse=True)
    sent_bytes = np.bincount(entry, tasks.size_bytes[counts], len(key))
    pair, phase = key % pairs, key // pairs
    count = np.diff(network.pair_start)[pair]
    row = np.repeat(np.arange(len(key)), count)
    place = ranges(network.pair_start[pair], count)
    on_circuit = network.pair_link[place] >= network.first_circuit
    row, place = row[on_circuit], place[on_circuit]
    circuit = network.pair_link[place].astype(np.int64) - network.first_circuit
    key, entry = np.unique(phase[row] * circuits + circuit, return_inverse=True)
    weight = network.pair_weight[place]
    more_bytes = np.bincount(entry, sent_bytes[row] * weight, len(key)).astype(np.float64)
    start = np.searchsorted(key, np.arange(phases + 1) * circuits)
    return (key % max(circuits, 1)).astype(np.intp), more_bytes, start
