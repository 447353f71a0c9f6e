"""Append nodes and dependencies in bulk; get a TaskGraph at the end."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import attrs
import numpy as np
from numpy.typing import ArrayLike, NDArray

from sipml_core.errors import SipmlError
from sipml_core.fields import frozen
from sipml_core.model.relayedtasks import NO_WAY, RelayedTasks, Ways
from sipml_core.model.taskgraph import BARRIER, TaskGraph
from sipml_core.model.traffickinds import TENSOR

#: Ids of nodes: 0, 1, ... for compute tasks and barriers, -1, -2, ... for transfers until `build` renumbers.
Nodes = NDArray[np.int32]


@frozen(eq=False)
class _Relays:
    """Some transfers that were added together, of which some are passed on: see `TaskBuilder.passed_on`."""

    first: int
    ways: Ways = attrs.field(factory=Ways)
    way: NDArray[np.int32] = attrs.field(factory=lambda: np.zeros(0, dtype=np.int32))
    place: NDArray[np.int32] = attrs.field(factory=lambda: np.zeros(0, dtype=np.int32))
    priorities: NDArray[np.int32] = attrs.field(factory=lambda: np.zeros(0, dtype=np.int32))


class TaskBuilder:
    """Collects tasks, barriers, transfers and dependencies as arrays.

    Every method takes arrays of any shape (operands broadcast) and returns node ids of that shape,
    so that one call adds the same thing to all replicas.

    Parameters
    ----------
    gpus
        GPUs of the job.
    labels
        Names of the kinds of work, see `TaskGraph.labels`.
    """

    def __init__(self, gpus: int, labels: Sequence[str] = ()) -> None:
        self.gpus = gpus
        self.labels = tuple(labels)
        self._tasks: list[tuple[NDArray[np.generic], ...]] = []
        self._transfers: list[tuple[NDArray[np.generic], ...]] = []
        #: First of some transfers, and what each of these takes to start.
        self._startups: list[tuple[int, NDArray[np.float64]]] = []
        self._edges: list[tuple[Nodes, Nodes]] = []
        self._relays: list[_Relays] = []
        self._task_count = 0
        self._transfer_count = 0

    def tasks(self, gpu: ArrayLike, duration_us: ArrayLike, priority: ArrayLike, label: ArrayLike) -> Nodes:
        """Compute tasks. `duration_us` in us; `label` indexes `labels`."""
        kinds = (np.int32, np.float64, np.int32, np.int32)
        shape, columns = _broadcast((gpu, duration_us, priority, label), kinds)
        self._tasks.append(columns)
        first = self._task_count
        self._task_count += columns[0].size
        return np.arange(first, self._task_count, dtype=np.int32).reshape(shape)

    def barriers(self, shape: int | tuple[int, ...], *, label: int = 0) -> Nodes:
        """Nodes that take no time and fire when their predecessors have."""
        return self.tasks(np.full(shape, BARRIER), 0.0, 0, label)

    def delays(self, duration_us: ArrayLike, shape: int | tuple[int, ...], *, label: int = 0) -> Nodes:
        """Barriers that fire so long after their predecessors have. `duration_us` in us."""
        return self.tasks(np.full(shape, BARRIER), duration_us, 0, label)

    def transfers(
        self,
        src: ArrayLike,
        dst: ArrayLike,
        size_bytes: ArrayLike,
        priority: ArrayLike,
        latency_steps: ArrayLike = 1.0,
        startup_us: ArrayLike = 0.0,
        kind: ArrayLike = TENSOR,
    ) -> Nodes:
        """Transfers between different GPUs. `size_bytes` in bytes, `startup_us` in us; `kind` indexes
        `TRAFFIC_KINDS`.
        """
        kinds = (np.int32, np.int32, np.float64, np.int32, np.float32, np.int8)
        shape, columns = _broadcast((src, dst, size_bytes, priority, latency_steps, kind), kinds)
        self._transfers.append(columns)
        first = self._transfer_count
        self._transfer_count += columns[0].size
        startup_us = np.asarray(startup_us, dtype=np.float64)
        if startup_us.any():
            self._startups.append((first, np.broadcast_to(startup_us, shape).reshape(-1)))
        return ~np.arange(first, self._transfer_count, dtype=np.int32).reshape(shape)

    def passed_on(
        self,
        src: ArrayLike,
        dst: ArrayLike,
        size_bytes: ArrayLike,
        ways: Ways,
        *,
        way: ArrayLike,
        place: ArrayLike,
        priorities: ArrayLike,
        kind: ArrayLike = TENSOR,
    ) -> Nodes:
        """Transfers some of which are passed on: see `RelayedTasks`.

        Parameters
        ----------
        way
            Of each, or NO_WAY.
        place, priorities
            Place of each, and the priority at each place, among what is added here, each leg for itself.
        """
        priorities = np.asarray(priorities, dtype=np.int32).reshape(-1)
        shape, columns = _broadcast((way, place), (np.int32, np.int32))
        way, place = (np.asarray(column, dtype=np.int32) for column in columns)
        first, relayed = self._transfer_count, np.flatnonzero(way != NO_WAY)
        first_place = place.copy()
        first_place[relayed] += ways.place[ways.start[way[relayed]]]
        sends = self.transfers(src, dst, size_bytes, priorities[first_place].reshape(shape), kind=kind)
        self._relays.append(_Relays(first, ways, way, place, priorities))
        return sends

    def depend(self, before: ArrayLike, after: ArrayLike) -> None:
        """Every node of `after` waits for its counterpart in `before`."""
        _, (first, second) = _broadcast((before, after), (np.int32, np.int32))
        if first.size:
            self._edges.append((first, second))  # type: ignore[arg-type]

    def append(self, parts: Sequence[tuple[TaskBuilder, Sequence[int]]]) -> list[Nodes]:
        """Take over what other builders have, numbered thing after thing.

        Parameters
        ----------
        parts
            Builders, each with the numbers of the things that it has, in order. Each call added equally many
            nodes for all of these, those of the first thing first.

        Returns
        -------
        The new number of each node, for each builder: to be indexed by the old ones.

        Examples
        --------
        A builder has two transfers for each of the things 0 and 2, another one for thing 1.

        >>> both, one, builder = TaskBuilder(2), TaskBuilder(2), TaskBuilder(2)
        >>> both.transfers(0, 1, [5.0, 25.0], 0).tolist(), both.transfers(1, 0, [6.0, 26.0], 0).tolist()
        ([-1, -2], [-3, -4])
        >>> one.transfers(0, 1, [15.0], 0).tolist()
        [-1]
        >>> of_both, of_one = builder.append([(both, [0, 2]), (one, [1])])
        >>> of_both[[-1, -2, -3, -4]].tolist(), of_one[[-1]].tolist()
        ([-1, -4, -2, -5], [-3])
        >>> builder.build().size_bytes.tolist()
        [5.0, 6.0, 15.0, 25.0, 26.0]
        """
        task_order = _thing_after_thing([(part._tasks, things) for part, things in parts])
        send_order = _thing_after_thing([(part._transfers, things) for part, things in parts])

        # New numbers of all tasks, and of all transfers, of one part after the other.
        tasks, sends = np.empty_like(task_order), np.empty_like(send_order)
        tasks[task_order] = np.arange(self._task_count, self._task_count + len(tasks))
        sends[send_order] = ~np.arange(self._transfer_count, self._transfer_count + len(sends))
        numbers, task, send, startup_us = [], 0, 0, np.zeros(len(sends))
        for part, _ in parts:
            task_end, send_end = task + part._task_count, send + part._transfer_count
            # What the first transfer, -1, became stands last.
            number = np.concatenate([tasks[task:task_end], sends[send:send_end][::-1]]).astype(np.int32)
            self._edges += [(number[before], number[after]) for before, after in part._edges]
            numbers.append(number)
            for first, values in part._startups:
                startup_us[send + first : send + first + len(values)] = values
            task, send = task_end, send_end

        if startup_us.any():
            self._startups.append((self._transfer_count, startup_us[send_order]))
        for own, order, width, chunks in (
            (self._tasks, task_order, 4, [chunk for part, _ in parts for chunk in part._tasks]),
            (self._transfers, send_order, 6, [chunk for part, _ in parts for chunk in part._transfers]),
        ):
            if chunks:
                own.append(tuple(column[order] for column in _joined(chunks, width)))
        self._task_count += len(tasks)
        self._transfer_count += len(sends)
        return numbers

    def build(self, marks: ArrayLike = ()) -> TaskGraph:
        """The finished graph, once; repeated dependencies are kept once, successors in order of id.

        Raises
        ------
        SipmlError
            A GPU, a size or a duration is out of range (see `TaskGraph`).
        """
        if self._relays:
            raise SipmlError("TaskBuilder: of transfers that are passed on build_relayed makes the tasks")
        return self._rows(marks)

    def build_relayed(self, marks: ArrayLike = ()) -> RelayedTasks:
        """The finished graph, once, with transfers that are passed on as one; see `build`."""
        rows, count = self._rows(marks), self._transfer_count
        own_priority = rows.priority[rows.compute_tasks :]
        way, place = np.full(count, NO_WAY, dtype=np.int32), np.empty(count, dtype=np.int32)
        # Ways so far, and priorities of all places; transfers that are not passed on have one place each.
        ways, priority = Ways(), [np.zeros(0, dtype=np.int32)]
        row = places = 0
        for each in [*self._relays, _Relays(first=count)]:
            place[row : each.first] = np.arange(places, places + each.first - row)
            places += each.first - row
            priority += [own_priority[row : each.first], each.priorities]

            row = each.first + len(each.way)
            place[each.first : row] = each.place + np.int32(places)
            way[each.first : row] = np.where(each.way == NO_WAY, NO_WAY, each.way + np.int32(ways.count))
            places += len(each.priorities)
            ways = ways.followed_by(each.ways)
        return RelayedTasks(rows=rows, ways=ways, way=way, place=place, priority=np.concatenate(priority))

    def _rows(self, marks: ArrayLike) -> TaskGraph:
        succ_start, successors = self._successors()
        gpu, duration_us, task_priority, label = _joined(self._tasks, 4)
        src, dst, size_bytes, transfer_priority, latency_steps, kind = _joined(self._transfers, 6)
        return TaskGraph(
            gpus=self.gpus,
            gpu=gpu,
            duration_us=duration_us,
            priority=np.concatenate([task_priority, transfer_priority]),
            src=src,
            dst=dst,
            size_bytes=size_bytes,
            latency_steps=latency_steps,
            succ_start=succ_start,
            successors=successors,
            marks=np.asarray(marks, dtype=np.int32).reshape(-1),
            label=label,
            labels=self.labels,
            startup_us=self._startup_us(),
            kind=kind.astype(np.int8),
        )

    def _startup_us(self) -> NDArray[np.float64]:
        """What each transfer takes to start, or nothing at all where none takes any. [transfers], or empty"""
        if not self._startups:
            return np.zeros(0)
        startup_us = np.zeros(self._transfer_count)
        for first, values in self._startups:
            startup_us[first : first + len(values)] = values
        return startup_us

    def _successors(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return dependencies as a compressed adjacency, by one sort of (before, after) packed in 64 bits."""
        count, nodes = sum(len(before) for before, _ in self._edges), self._task_count + self._transfer_count
        key = np.empty(count, dtype=np.int64)
        # The halves of each key that count less, and more.
        low, high = (
            key.view(np.int32)[half::2] for half in ((0, 1) if sys.byteorder == "little" else (1, 0))
        )
        while self._edges:
            before, after = self._edges.pop()
            low[count - len(before) : count] = self._final(after)
            high[count - len(before) : count] = self._final(before)
            count -= len(before)
        key.sort()

        # Places of edges that equal the next one; edges of each node without these.
        repeated = np.flatnonzero(key[1:] == key[:-1])
        kept = np.ones(len(key), dtype=np.bool_)
        kept[repeated] = False
        successors = low[kept] if len(repeated) else key.astype(np.int32)
        key >>= 32
        edges = np.bincount(key, minlength=nodes)
        np.subtract.at(edges, key[repeated], 1)
        succ_start = np.zeros(nodes + 1, dtype=np.int32)
        np.cumsum(edges, out=succ_start[1:], dtype=np.int32)
        return succ_start, successors

    def _final(self, nodes: Nodes) -> Nodes:
        """Node numbers of the TaskGraph: transfers come after all tasks."""
        if nodes.min() >= 0:
            return nodes
        if nodes.max() < 0:
            return np.int32(self._task_count - 1) - nodes
        return np.where(nodes < 0, self._task_count + ~nodes, nodes)


def _broadcast(
    operands: Sequence[ArrayLike], kinds: Sequence[type]
) -> tuple[tuple[int, ...], tuple[NDArray[np.generic], ...]]:
    """Return the shape that operands have together, and each as a column of that size and its type.

    >>> _broadcast(([[0], [1]], [5, 6]), (np.int32, np.int8))
    ((2, 2), (array([0, 0, 1, 1], dtype=int32), array([5, 6, 5, 6], dtype=int8)))
    """
    arrays = [np.asarray(operand) for operand in operands]
    shape = np.broadcast(*arrays).shape
    return shape, tuple(_column(array, shape, kind) for array, kind in zip(arrays, kinds, strict=True))


def _column(array: NDArray[np.generic], shape: tuple[int, ...], kind: type) -> NDArray[np.generic]:
    """Return an array as a column of some type: the same memory where it is of that shape and type."""
    if array.shape == shape:
        return np.ascontiguousarray(array, dtype=kind).reshape(-1)
    column: NDArray[np.generic] = np.empty(shape, dtype=kind)
    column[...] = array
    return column.reshape(-1)


def _thing_after_thing(
    parts: Sequence[tuple[Sequence[tuple[NDArray[np.generic], ...]], Sequence[int]]],
) -> NDArray[np.int64]:
    """Return the order in which nodes of chunks, each of all things in turn, stand thing after thing.

    >>> chunk = (np.zeros(2),)
    >>> _thing_after_thing([([chunk, chunk], [0, 1])]).tolist()
    [0, 2, 1, 3]
    """
    things = [
        np.repeat(np.asarray(things), len(chunk[0]) // len(things))
        for chunks, things in parts
        for chunk in chunks
    ]
    return np.argsort(np.concatenate([np.zeros(0, dtype=np.int64), *things]), kind="stable")


def _joined(chunks: list[tuple[NDArray[np.generic], ...]], width: int) -> list[NDArray[np.generic]]:
    if not chunks:
        return [np.empty(0) for _ in range(width)]
    if len(chunks) == 1:
        return list(chunks[0])
    columns = [list(column) for column in zip(*chunks, strict=True)]
    chunks.clear()
    return [np.concatenate(columns.pop(0)) for _ in range(width)]
