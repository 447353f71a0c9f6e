"""What a GPU waits for while it only communicates: exposed time by the kind of traffic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import frozen
from sipml_core.model import (
    BARRIER,
    CONTEXT,
    EXPERT,
    GRADIENT,
    PIPELINE,
    TENSOR,
    TRAFFIC_KINDS,
    TaskGraph,
    Timeline,
)

#: Where several kinds are pending, time is counted for the first of these: what blocks the pass that is next.
BLAMED_FIRST = (TENSOR, CONTEXT, EXPERT, PIPELINE, GRADIENT)
#: Starts and ends that are looked at, at most: beyond, those of some GPUs, evenly chosen, stand for all.
MAX_CHANGES = 2_000_000
#: States of a GPU beside the kinds of traffic that are pending.
_COMPUTES, _NOT_ISSUED = -1, -2
#: Spans that are sorted at a time.
_PART = 1 << 15


def exposed_by_kind(
    tasks: TaskGraph, timeline: Timeline, gpus: NDArray[np.int32], since_us: float, exposed_us: float
) -> NDArray[np.float64]:
    """Return which of the exposed time is which kind's, as means over GPUs; they add up to it. [kinds] [us]

    A GPU that runs no task and has transfers pending is exposed to the first of their kinds in the order of
    `BLAMED_FIRST`. Shares of such times are those of `exposed_us`, which leaves out dark time.

    Parameters
    ----------
    gpus
        Those that are simulated.
    since_us, exposed_us
        Start of the iteration that is reported, and the mean exposed time in it. [us]

    Examples
    --------
    GPU 0 computes until 2; a tensor transfer to it is pending until 5, one of gradients until 9.

    >>> from sipml_core.model import TaskBuilder
    >>> builder = TaskBuilder(2)
    >>> _ = builder.tasks(0, 2.0, 0, 0), builder.transfers(1, 0, 1.0, 0, kind=[TENSOR, GRADIENT])
    >>> timeline = Timeline(
    ...     start_us=np.array([0.0, 0.0, 0.0]), end_us=np.array([2.0, 5.0, 9.0]), snapshot_us=np.array([9.0]),
    ...     compute_us=np.zeros((1, 2)), exposed_us=np.zeros((1, 2)), dark_us=np.zeros((1, 2)),
    ...     link_bytes=np.zeros(0), link_busy_us=np.zeros(0), events=0,
    ... )
    >>> exposed_by_kind(builder.build(), timeline, np.array([0]), 0.0, 7.0).tolist()
    [3.0, 0.0, 0.0, 0.0, 4.0]
    """
    found = np.zeros(len(TRAFFIC_KINDS))
    if tasks.kind is None or exposed_us == 0:
        return found
    spans = Spans.of(tasks, timeline, _some(tasks, gpus), since_us)
    kinds = [kind for kind in BLAMED_FIRST if (spans.state == kind).any()]
    parts = [part.blamed_us(kinds) for part in spans.parts()]
    for place, kind in enumerate(kinds):
        found[kind] = np.concatenate([part[place] for part in parts]).sum()
    total = found.sum()
    return found * (exposed_us / total) if total > 0 else found


def host_wait_us(tasks: TaskGraph, timeline: Timeline, gpus: NDArray[np.int32], since_us: float) -> float:
    """Return for how long GPUs do nothing, and would if their host had issued what is ready: their mean. [us]

    An op is ready when all that it waits for has ended, but for its host, which delays stand for (barriers
    that take time).

    Parameters
    ----------
    gpus, since_us
        As of `exposed_by_kind`.

    Examples
    --------
    GPU 0 computes until 2. Its second task waits for that, and for the host, which issues it at 5: it is 3 us
    late. A transfer to the GPU is pending until 3: of these, 2 us are nothing but waiting for the host.

    >>> from sipml_core.model import TaskBuilder
    >>> builder = TaskBuilder(2)
    >>> first, second = builder.tasks([0, 0], [2.0, 1.0], 0, 0)
    >>> issued = builder.delays([5.0], 1)
    >>> builder.depend(first, second), builder.depend(issued, second)
    (None, None)
    >>> _ = builder.transfers(1, 0, 1.0, 0)
    >>> timeline = Timeline(
    ...     start_us=np.array([0.0, 5.0, 0.0, 0.0]), end_us=np.array([2.0, 6.0, 5.0, 3.0]),
    ...     snapshot_us=np.array([6.0]), compute_us=np.zeros((1, 2)), exposed_us=np.zeros((1, 2)),
    ...     dark_us=np.zeros((1, 2)), link_bytes=np.zeros(0), link_busy_us=np.zeros(0), events=0,
    ... )
    >>> host_wait_us(builder.build(), timeline, np.array([0], dtype=np.int32), 0.0)
    2.0
    """
    gpus = _some(tasks, gpus)
    delays = np.flatnonzero((tasks.gpu == BARRIER) & (tasks.duration_us > 0))
    # The task that each delay is for, and whether each node is such a task on one of these GPUs.
    late = tasks.successors[tasks.succ_start[delays]]
    is_late = np.zeros(tasks.nodes, dtype=np.bool_)
    is_late[late[np.isin(tasks.gpu[late], gpus)]] = True

    # When each was ready but for its host, and when it was issued. [nodes]
    entry = np.flatnonzero(is_late[tasks.successors])
    before = np.searchsorted(tasks.succ_start, entry, side="right") - 1
    ready_us, issued_us = np.zeros(tasks.nodes), np.zeros(tasks.nodes)
    is_delay = np.zeros(tasks.nodes, dtype=np.bool_)
    is_delay[delays] = True
    for of_host, latest_us in ((False, ready_us), (True, issued_us)):
        chosen = is_delay[before] == of_host
        np.maximum.at(latest_us, tasks.successors[entry[chosen]], timeline.end_us[before[chosen]])

    waiting = np.flatnonzero(is_late & (issued_us > ready_us))
    spans = Spans.of(tasks, timeline, gpus, since_us).with_state(
        _NOT_ISSUED, tasks.gpu[waiting], np.maximum(ready_us[waiting], since_us), issued_us[waiting]
    )
    kinds = [*BLAMED_FIRST, _NOT_ISSUED]
    return float(sum(part.blamed_us(kinds)[-1].sum() for part in spans.parts()) / len(gpus))


def _some(tasks: TaskGraph, gpus: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return those of some GPUs that are looked at: all, or of large runs a few, evenly chosen."""
    changes = tasks.compute_tasks + 2 * tasks.transfers
    if changes <= MAX_CHANGES:
        return gpus
    few = max(1, int(len(gpus) * MAX_CHANGES / changes))
    return gpus[np.linspace(0, len(gpus) - 1, few).astype(np.int64)]


@frozen(eq=False)
class Spans:
    """What some GPUs do when: spans of time in the order of GPUs; a transfer has one at both of its ends."""

    #: [spans]
    gpu: NDArray[np.int32]
    #: Computes, or the kind of traffic that is pending, or an op that the host has not issued. [spans]
    state: NDArray[np.int8]
    #: [spans] [us]
    start_us: NDArray[np.float64]
    end_us: NDArray[np.float64]

    @classmethod
    def of(cls, tasks: TaskGraph, timeline: Timeline, gpus: NDArray[np.int32], since_us: float) -> Spans:
        """Return what is left of the spans of `gpus` from `since_us` on."""
        chosen = np.zeros(tasks.gpus, dtype=np.bool_)
        chosen[gpus] = True
        compute = np.flatnonzero((tasks.gpu >= 0) & chosen[np.maximum(tasks.gpu, 0)])
        out, into = np.flatnonzero(chosen[tasks.src]), np.flatnonzero(chosen[tasks.dst])
        ends = np.concatenate([out, into])
        nodes = np.concatenate([compute, tasks.compute_tasks + ends])
        assert tasks.kind is not None
        state = np.concatenate([np.full(len(compute), _COMPUTES, dtype=np.int8), tasks.kind[ends]])
        gpu = np.concatenate([tasks.gpu[compute], tasks.src[out], tasks.dst[into]])

        later = np.flatnonzero(timeline.end_us[nodes] > np.maximum(timeline.start_us[nodes], since_us))
        # Numbers of 16 bits are sorted by counting.
        order = np.argsort(gpu[later].astype(np.min_scalar_type(tasks.gpus)), kind="stable")
        later = later[order]
        nodes = nodes[later]
        return cls(
            gpu[later], state[later], np.maximum(timeline.start_us[nodes], since_us), timeline.end_us[nodes]
        )

    def with_state(
        self, state: int, gpu: NDArray[np.int32], start_us: NDArray[np.float64], end_us: NDArray[np.float64]
    ) -> Spans:
        """Return these spans and those of one more state; of these, the empty ones are left out."""
        real = end_us > start_us
        of_gpu = np.concatenate([self.gpu, gpu[real]])
        order = np.argsort(of_gpu, kind="stable")
        return Spans(
            of_gpu[order],
            np.concatenate([self.state, np.full(np.count_nonzero(real), state, dtype=np.int8)])[order],
            np.concatenate([self.start_us, start_us[real]])[order],
            np.concatenate([self.end_us, end_us[real]])[order],
        )

    def parts(self) -> Iterator[Spans]:
        """Yield the spans of some GPUs at a time, about `_PART`: what fits a cache is sorted soonest."""
        # First span of each GPU that has any. [GPUs]
        first = np.flatnonzero(np.diff(self.gpu, prepend=-1))
        cuts = first[np.flatnonzero(np.diff(first // _PART, prepend=-1))].tolist()
        for start, stop in pairwise([*cuts, len(self.gpu)]):
            part = slice(start, stop)
            yield Spans(self.gpu[part], self.state[part], self.start_us[part], self.end_us[part])

    def blamed_us(self, kinds: Sequence[int]) -> list[NDArray[np.float64]]:
        """Return the times in which no task runs and the first of `kinds` that is pending is each of them.

        In the order of GPUs and times, from each start or end of something to the next. [kinds, times] [us]
        """
        # Every start and end in the order of GPUs and times, and the time to the next one of the same GPU.
        at_us, of_gpu = np.concatenate([self.start_us, self.end_us]), np.tile(self.gpu, 2)
        order = np.lexsort((at_us, of_gpu))
        at_us, of_gpu = at_us[order], of_gpu[order]
        span_us = np.zeros(len(order))
        np.subtract(at_us[1:], at_us[:-1], out=span_us[:-1], where=of_gpu[1:] == of_gpu[:-1])

        # 1 where something starts, -1 where it ends; and of what.
        change = np.where(order < len(self.gpu), np.int32(1), np.int32(-1))
        state = np.tile(self.state, 2)[order]
        waits = np.cumsum(change * (state == _COMPUTES), dtype=np.int32) == 0
        found = []
        for kind in kinds:
            pending = np.cumsum(change * (state == kind), dtype=np.int32) > 0
            found.append(span_us[waits & pending])
            waits &= ~pending
        return found
