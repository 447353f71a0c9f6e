"""What a GPU waits for while it only communicates: exposed time by the kind of traffic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.model import (
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
    changes = tasks.compute_tasks + 2 * tasks.transfers
    if changes > MAX_CHANGES:
        few = max(1, int(len(gpus) * MAX_CHANGES / changes))
        gpus = gpus[np.linspace(0, len(gpus) - 1, few).astype(np.int64)]
    spans = Spans.of(tasks, timeline, gpus, since_us)
    kinds = [kind for kind in BLAMED_FIRST if (spans.state == kind).any()]
    parts = [part.blamed_us(kinds) for part in spans.parts()]
    for place, kind in enumerate(kinds):
        found[kind] = np.concatenate([part[place] for part in parts]).sum()
    total = found.sum()
    return found * (exposed_us / total) if total > 0 else found


@attrs.frozen(eq=False)
class Spans:
    """What some GPUs do when: spans of time in the order of GPUs; a transfer has one at both of its ends."""

    #: [spans]
    gpu: NDArray[np.int32]
    #: -1: computes; else the kind of traffic that is pending. [spans]
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
        state = np.concatenate([np.full(len(compute), -1, dtype=np.int8), tasks.kind[ends]])
        gpu = np.concatenate([tasks.gpu[compute], tasks.src[out], tasks.dst[into]])

        later = np.flatnonzero(timeline.end_us[nodes] > np.maximum(timeline.start_us[nodes], since_us))
        # Numbers of 16 bits are sorted by counting.
        order = np.argsort(gpu[later].astype(np.min_scalar_type(tasks.gpus)), kind="stable")
        later = later[order]
        nodes = nodes[later]
        return cls(
            gpu[later], state[later], np.maximum(timeline.start_us[nodes], since_us), timeline.end_us[nodes]
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
        waits = np.cumsum(change * (state == -1), dtype=np.int32) == 0
        found = []
        for kind in kinds:
            pending = np.cumsum(change * (state == kind), dtype=np.int32) > 0
            found.append(span_us[waits & pending])
            waits &= ~pending
        return found
