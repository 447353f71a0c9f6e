"""What a GPU waits for: exposed time by the kind of traffic, and idle time by the host."""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

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
    gpus = _some(tasks, gpus)
    course = _Course.of(*_spans(tasks, timeline, gpus), since_us)
    waits = ~course.under_way(_COMPUTES)
    for kind in BLAMED_FIRST:
        pending = course.under_way(kind)
        found[kind] = course.span_us[waits & pending].sum()
        waits &= ~pending
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
    gpu, state, start_us, end_us = _spans(tasks, timeline, gpus)
    course = _Course.of(
        np.concatenate([gpu, tasks.gpu[waiting]]),
        np.concatenate([state, np.full(len(waiting), _NOT_ISSUED, dtype=np.int8)]),
        np.concatenate([start_us, ready_us[waiting]]),
        np.concatenate([end_us, issued_us[waiting]]),
        since_us,
    )
    waits = course.under_way(_NOT_ISSUED) & ~course.under_way(_COMPUTES)
    for kind in BLAMED_FIRST:
        waits &= ~course.under_way(kind)
    return float(course.span_us[waits].sum() / len(gpus))


def _some(tasks: TaskGraph, gpus: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return those of some GPUs that are looked at: all, or of large runs a few, evenly chosen."""
    changes = tasks.compute_tasks + 2 * tasks.transfers
    if changes <= MAX_CHANGES:
        return gpus
    few = max(1, int(len(gpus) * MAX_CHANGES / changes))
    return gpus[np.linspace(0, len(gpus) - 1, few).astype(np.int64)]


@attrs.frozen(kw_only=True, eq=False)
class _Course:
    """Every start and end of some states of GPUs, in the order of GPUs and times."""

    #: State that begins or ends: +1 or -1. [changes]
    state: NDArray[np.int8]
    change: NDArray[np.int32]
    #: From each to the next of its GPU. [changes] [us]
    span_us: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        gpu: NDArray[np.int32],
        state: NDArray[np.int8],
        start_us: NDArray[np.float64],
        end_us: NDArray[np.float64],
        since_us: float,
    ) -> _Course:
        """Return the course of states that lie after `since_us`."""
        start_us = np.maximum(start_us, since_us)
        real = end_us > start_us
        gpu, state, start_us, end_us = gpu[real], state[real], start_us[real], end_us[real]
        at_us = np.concatenate([start_us, end_us])
        of_gpu = np.tile(gpu, 2)
        order = np.lexsort((at_us, of_gpu))
        of_gpu, at_us = of_gpu[order], at_us[order]
        span_us = np.zeros(len(at_us))
        span_us[:-1] = np.where(of_gpu[1:] == of_gpu[:-1], np.diff(at_us), 0.0)
        return cls(
            state=np.tile(state, 2)[order],
            change=np.repeat([1, -1], len(gpu)).astype(np.int32)[order],
            span_us=span_us,
        )

    def under_way(self, state: int) -> NDArray[np.bool_]:
        """Return whether a state lasts from each change to the next. [changes]"""
        return np.asarray(np.cumsum(np.where(self.state == state, self.change, 0)) > 0)


def _spans(
    tasks: TaskGraph, timeline: Timeline, gpus: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int8], NDArray[np.float64], NDArray[np.float64]]:
    """Return GPU, state (computes, or the kind that is pending), start and end of what some GPUs do.

    A transfer is pending at both of its ends.
    """
    chosen = np.zeros(tasks.gpus, dtype=np.bool_)
    chosen[gpus] = True
    compute = np.flatnonzero((tasks.gpu >= 0) & chosen[np.maximum(tasks.gpu, 0)])
    out, into = np.flatnonzero(chosen[tasks.src]), np.flatnonzero(chosen[tasks.dst])
    ends = np.concatenate([out, into])
    nodes = np.concatenate([compute, tasks.compute_tasks + ends])
    assert tasks.kind is not None
    return (
        np.concatenate([tasks.gpu[compute], tasks.src[out], tasks.dst[into]]),
        np.concatenate([np.full(len(compute), _COMPUTES, dtype=np.int8), tasks.kind[ends]]),
        timeline.start_us[nodes],
        timeline.end_us[nodes],
    )
