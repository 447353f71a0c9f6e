"""Why things happen when they do: what each task and transfer waited for last, and the chain to the end."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import format_bytes, frozen
from sipml_core.model import BARRIER, TRAFFIC_KINDS, CaseRecord, TaskGraph, Timeline

NONE = -1


def last_cause(tasks: TaskGraph, timeline: Timeline) -> NDArray[np.int32]:
    """Return the predecessor of each node that ended last, through barriers; -1 where there is none. [nodes]

    Of several that end together it is the one of the lowest number. What a barrier waited for stands in its
    place: causes are compute tasks and transfers.
    """
    before = np.repeat(np.arange(tasks.nodes, dtype=np.int32), np.diff(tasks.succ_start))
    cause = np.full(tasks.nodes, NONE, dtype=np.int32)
    if len(before):
        # Dependencies by node, of each the latest end first. [edges]
        order = np.lexsort((before, -timeline.end_us[before], tasks.successors))
        node = tasks.successors[order]
        first = np.flatnonzero(np.diff(node, prepend=-1))
        cause[node[first]] = before[order[first]]

    # A barrier hands on its own cause; chains of barriers are halved in each round.
    barrier = np.zeros(tasks.nodes + 1, dtype=np.bool_)
    barrier[: tasks.compute_tasks] = tasks.gpu == BARRIER
    while (through := barrier[cause]).any():
        cause[through] = cause[cause[through]]
    return cause


def task_before(tasks: TaskGraph, timeline: Timeline) -> NDArray[np.int32]:
    """Return the task that each compute task's GPU did just before; -1: none. [tasks]"""
    before = np.full(tasks.compute_tasks, NONE, dtype=np.int32)
    real = np.flatnonzero(tasks.gpu >= 0)
    order = real[np.lexsort((timeline.end_us[real], timeline.start_us[real], tasks.gpu[real]))]
    same = tasks.gpu[order[1:]] == tasks.gpu[order[:-1]]
    before[order[1:][same]] = order[:-1][same]
    return before


def queued_behind(record: CaseRecord) -> NDArray[np.int32]:
    """Return the transfer that each one waited for in its queue; -1: none. [transfers]"""
    tasks, times = record.tasks, record.timeline.transfers
    assert times is not None
    queue = tasks.src if record.queue == "source" else record.network.transfer_pair
    joined_us = record.timeline.start_us[tasks.compute_tasks :]
    order = np.lexsort((times.left_us, times.head_us, queue))
    behind = np.full(tasks.transfers, NONE, dtype=np.int32)
    same = queue[order[1:]] == queue[order[:-1]]
    behind[order[1:][same]] = order[:-1][same]
    return np.where(times.head_us > joined_us, behind, NONE).astype(np.int32)


@frozen(kw_only=True)
class PathStep:
    """One step of the critical path: what went on, where, and for how long."""

    #: compute, transfer (its bytes move), dark (its circuits are), latency, idle.
    what: str
    name: str
    where: str
    since_us: float
    until_us: float
    #: Node of the task graph.
    node: int
    #: Link that held a transfer back, by its fabric id; None: no link.
    link: int | None = None
    #: Why the bytes are sent; empty for compute.
    kind: str = ""

    @property
    def span_us(self) -> float:
        return self.until_us - self.since_us


def critical_path(record: CaseRecord) -> list[PathStep]:
    """Return the chain of causes that leads to the end of the run, from its start: spans that add up to it.

    From what ended last one goes back to what it waited for last: a task to its cause or to the task before
    on its GPU, a transfer to the one before in its queue or to its cause.
    """
    tasks, timeline = record.tasks, record.timeline
    cause, before = last_cause(tasks, timeline), task_before(tasks, timeline)
    behind = queued_behind(record)
    ends = np.concatenate([np.where(tasks.gpu >= 0, timeline.end_us[: tasks.compute_tasks], -1.0),
                           timeline.end_us[tasks.compute_tasks :]])  # fmt: skip
    node = int(ends.argmax())
    steps: list[PathStep] = []
    until_us = float(ends[node])
    while node != NONE:
        found, following = _steps_of(record, node, until_us, (cause, before, behind))
        steps += found
        until_us = found[-1].since_us if found else until_us
        end_us = float(timeline.end_us[following]) if following != NONE else until_us
        if end_us < until_us * (1 - 1e-12):
            steps.append(_idle(node, end_us, until_us))
            until_us = end_us
        node = following
    if until_us > 0:
        steps.append(_idle(int(ends.argmax()), 0.0, until_us))
    return [step for step in reversed(steps) if step.span_us > 0]


def _idle(node: int, since_us: float, until_us: float) -> PathStep:
    return PathStep(what="idle", name="", where="", since_us=since_us, until_us=until_us, node=node)


def _steps_of(
    record: CaseRecord, node: int, until_us: float, known: tuple[NDArray[np.int32], ...]
) -> tuple[list[PathStep], int]:
    """What a node did up to a time, the last first, and the node that it waited for."""
    cause, before, behind = known
    tasks, timeline = record.tasks, record.timeline
    if node < tasks.compute_tasks:
        start_us = float(timeline.start_us[node])
        step = PathStep(
            what="compute", name=task_name(record, node), where=f"GPU {tasks.gpu[node]}",
            since_us=start_us, until_us=until_us, node=node,
        )  # fmt: skip
        earlier = int(before[node])
        ready_us = float(timeline.end_us[cause[node]]) if cause[node] != NONE else 0.0
        busy = earlier != NONE and float(timeline.end_us[earlier]) > ready_us
        return [step], earlier if busy else int(cause[node])

    times, t = timeline.transfers, node - tasks.compute_tasks
    assert times is not None
    link = int(record.network.link_id[times.held_by[t]]) if times.held_by[t] >= 0 else None
    kind = TRAFFIC_KINDS[record.kind[t]]
    marks = (
        ("latency", float(times.left_us[t])),
        ("transfer", float(times.moved_us[t])),
        ("dark", float(times.head_us[t])),
    )
    steps = []
    for what, since_us in marks:
        if until_us > since_us:
            steps.append(
                PathStep(
                    what=what,
                    name=transfer_name(record, t),
                    kind=kind,
                    node=node,
                    since_us=since_us,
                    where=record.link_name(link) if link is not None else "",
                    until_us=until_us,
                    link=link,
                )
            )
            until_us = since_us
    if behind[t] != NONE:
        # The one before had the queue until its last byte left: its latency is not waited for.
        return steps, int(behind[t]) + tasks.compute_tasks
    return steps, int(cause[node])


def task_name(record: CaseRecord, node: int) -> str:
    """Return what a compute task is called: its op and micro-batch."""
    if record.op[node] < 0:
        return record.tasks.labels[record.tasks.label[node]] if record.tasks.labels else "task"
    name = record.op_names[record.op[node]]
    return f"{name}, micro-batch {record.micro_batch[node]}" if record.micro_batch.max() > 0 else name


def transfer_name(record: CaseRecord, transfer: int) -> str:
    """Return what a transfer is called: its ends and size."""
    src, dst = record.tasks.src[transfer], record.transfer_dst[transfer]
    return f"GPU {src} -> {dst}, {format_bytes(float(record.tasks.size_bytes[transfer]))}"
