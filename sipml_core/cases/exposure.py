"""What a GPU waits for while it only communicates: exposed time by the kind of traffic."""

from __future__ import annotations

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
    gpu, state, start_us, end_us = _spans(tasks, timeline, gpus)
    start_us = np.maximum(start_us, since_us)
    real = end_us > start_us
    gpu, state, start_us, end_us = gpu[real], state[real], start_us[real], end_us[real]
    if not len(gpu):
        return found

    # Every start and end in the order of GPUs and times, and the time to the next one.
    at_us = np.concatenate([start_us, end_us])
    of_gpu, of_state = np.tile(gpu, 2), np.tile(state, 2)
    order = np.lexsort((at_us, of_gpu))
    change = np.repeat([1, -1], len(gpu)).astype(np.int32)[order]
    of_state, of_gpu, at_us = of_state[order], of_gpu[order], at_us[order]
    following = np.append(of_gpu[1:] == of_gpu[:-1], False)
    span_us = np.where(following, np.append(np.diff(at_us), 0.0), 0.0)
    waits = np.cumsum(np.where(of_state == -1, change, 0)) == 0
    for kind in BLAMED_FIRST:
        pending = np.cumsum(np.where(of_state == kind, change, 0)) > 0
        found[kind] = span_us[waits & pending].sum()
        waits &= ~pending
    total = found.sum()
    return found * (exposed_us / total) if total > 0 else found


def _spans(
    tasks: TaskGraph, timeline: Timeline, gpus: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int8], NDArray[np.float64], NDArray[np.float64]]:
    """Return GPU, state (-1: computes; else the kind that is pending), start and end of what some GPUs do.

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
        np.concatenate([np.full(len(compute), -1, dtype=np.int8), tasks.kind[ends]]),
        timeline.start_us[nodes],
        timeline.end_us[nodes],
    )
