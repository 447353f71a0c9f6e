"""For which traffic GPUs wait: the time in which they compute nothing and transfers are pending, by kind."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sipml_core.details.causes import NONE, last_cause
from sipml_core.model import TRAFFIC_KINDS, CaseRecord


def waits_by_kind(record: CaseRecord) -> NDArray[np.float64]:
    """Return how long each simulated GPU waits for each kind of traffic. [gpus, kinds] [us]

    The kinds of a GPU add up to its exposed and dark time. A moment belongs to the kind of what the next task
    of the GPU waits for last, or, where that is no transfer, of the next one that arrives.
    """
    tasks, timeline = record.tasks, record.timeline
    first, kind = tasks.compute_tasks, record.kind
    real = np.flatnonzero(tasks.gpu >= 0)
    joined_us, arrived_us = timeline.start_us[first:], timeline.end_us[first:]

    # Kind of what each task waits for last, NONE where that is no transfer. [tasks]
    cause = last_cause(tasks, timeline)[:first][real]
    wanted = np.where(cause >= first, kind[np.maximum(cause - first, 0)] if len(kind) else NONE, NONE)

    # Events: a task begins, ends; a transfer is pending at both its ends, and no more. [events]
    nothing = np.full(len(joined_us), NONE)
    columns = [
        (tasks.gpu[real], timeline.start_us[real], 1, 0, wanted, np.full(len(real), 1)),
        (tasks.gpu[real], timeline.end_us[real], -1, 0, np.full(len(real), NONE), np.zeros(len(real))),
    ]
    for end in (tasks.src, tasks.dst):
        columns.append((end, joined_us, 0, 1, nothing, np.zeros(len(end))))
        columns.append((end, arrived_us, 0, -1, kind, np.full(len(end), 2)))
    gpu, at_us = (np.concatenate([column[k] for column in columns]) for k in (0, 1))
    runs, pending = (np.concatenate([np.full(len(c[0]), c[k]) for c in columns]) for k in (2, 3))
    says, event = (np.concatenate([column[k] for column in columns]) for k in (4, 5))
    order = np.lexsort((at_us, gpu))
    gpu, at_us, says, event = gpu[order], at_us[order], says[order], event[order]

    # State after each event; it lasts until the next of the same GPU. Both counts are 0 at the end of a GPU.
    waiting = (np.cumsum(runs[order]) == 0) & (np.cumsum(pending[order]) > 0)
    span_us = np.diff(at_us, append=at_us[-1:])
    lasts = np.flatnonzero(waiting[:-1] & (gpu[1:] == gpu[:-1]) & (span_us[:-1] > 0))

    by_task, by_arrival = _next_of(event == 1, says, gpu), _next_of(event == 2, says, gpu)
    chosen = np.where(by_task == NONE, by_arrival, by_task)[lasts]
    found = np.zeros((record.gpus, len(TRAFFIC_KINDS)))
    np.add.at(found, (gpu[lasts], np.maximum(chosen, 0)), span_us[lasts])
    return found


def _next_of(chosen: NDArray[np.bool_], says: NDArray[np.int64], gpu: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return what the next chosen event after each one, of the same GPU, says; NONE: there is none. [events]

    >>> chosen = np.array([False, True, False, True])
    >>> _next_of(chosen, np.array([7, 8, 9, 5]), np.array([0, 0, 1, 1])).tolist()
    [8, -1, 5, -1]
    """
    count = len(chosen)
    place = np.where(chosen, np.arange(count), count)
    following = np.append(np.minimum.accumulate(place[::-1])[::-1], count)[1:]
    there = following < count
    safe = np.where(there, following, 0)
    return np.where(there & (gpu[safe] == gpu), says[safe], NONE) if count else np.empty(0, np.int64)
