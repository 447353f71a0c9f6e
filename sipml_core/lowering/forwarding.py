"""Transfers that circuits do not join the ends of: passed on from GPU to GPU, on every port and segment.

On a ring that is what lies beyond the reach of circuits. Where a GPU has fewer circuits than replicas to send
rows of experts to, these replicas form a grid, and rows go along one of its axes after the other.

A GPU between passes on chunk by chunk what comes in, so that all hops of a transfer go on at the same time.
It has arrived when the last of them has ended, and every one takes its bytes of the ports and circuits at its
ends. Passing on takes no time of the GPU's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import frozen
from sipml_core.model import Plan, TaskGraph, ranges


@frozen(kw_only=True, eq=False)
class Forwarding(ABC):
    """Passes transfers between GPUs 0 .. N-1 on from GPU to GPU."""

    gpus: int

    @abstractmethod
    def waypoints(self, src: int, dst: int) -> list[int]:
        """Return the GPUs that a transfer passes, both ends included."""

    @abstractmethod
    def _far(self, src: NDArray[np.int32], dst: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return which transfers may take more than one hop. [transfers]"""

    def applied(self, tasks: TaskGraph, gpu_at: NDArray[np.int32], made: int) -> TaskGraph:
        """Return the tasks with every transfer whose ends no circuit joins in hops.

        Parameters
        ----------
        gpu_at
            GPU at each position of the job. [gpus]
        made
            Positions, a divisor of all, whose GPUs have tasks: what another GPU passes on is done, as the
            image of it, by one of these.

        Examples
        --------
        Four GPUs that reach their neighbours: what GPU 0 sends to 2 is passed on by 1. Task 1, which waited
        for the transfer (node 2), waits for both hops, nodes 2 and 3.

        >>> from sipml_core.model import TaskBuilder
        >>> builder = TaskBuilder(4)
        >>> ends = builder.tasks([0, 2], 1.0, 0, 0)
        >>> sent = builder.transfers([0], [2], 8.0, 0)
        >>> builder.depend(ends[:1], sent), builder.depend(sent, ends[1:])
        (None, None)
        >>> ring = RingForwarding(reach_hops=1, gpus=4)
        >>> found = ring.applied(builder.build(), np.arange(4, dtype=np.int32), made=4)
        >>> list(zip(found.src.tolist(), found.dst.tolist(), found.size_bytes.tolist()))
        [(0, 1, 8.0), (1, 2, 8.0)]
        >>> [found.successors[a:b].tolist() for a, b in zip(found.succ_start[:-1], found.succ_start[1:])]
        [[2, 3], [], [1], [1]]
        """
        far = np.flatnonzero(self._far(tasks.src, tasks.dst))
        if not len(far):
            return tasks

        # Ends of all hops of each pair, and which transfers are of it. Hops after the first are new ones.
        pair = tasks.src[far].astype(np.int64) * self.gpus + tasks.dst[far]
        pairs, of = np.unique(pair, return_inverse=True)
        ways = [self.waypoints(*divmod(int(each), self.gpus)) for each in pairs]
        hops = np.array([len(way) - 1 for way in ways])[of.reshape(-1)]
        first_dst = np.array([way[1] for way in ways], dtype=np.int32)[of.reshape(-1)]
        starts = np.array([gpu for way in ways for gpu in way[1:-1]], dtype=np.int64)
        ends = np.array([gpu for way in ways for gpu in way[2:]], dtype=np.int64)
        offset = np.cumsum([0, *(len(way) - 2 for way in ways)])[:-1][of.reshape(-1)]

        # The transfer that each new hop belongs to, and its row in `starts` and `ends`. [new hops]
        extra = hops - 1
        owner = np.repeat(far, extra)
        row = ranges(offset, extra)
        src, dst = _on_first_groups(starts[row], ends[row], gpu_at, made)

        # Each hop pays the latency of all, as the last chunk crosses one after the other.
        steps = tasks.latency_steps.copy()
        steps[far] *= hops
        to = tasks.dst.copy()
        to[far] = first_dst
        startup_us, kind = tasks.startup_us, tasks.kind
        succ_start, successors = _beside(tasks, owner)
        return attrs.evolve(
            tasks,
            src=np.concatenate([tasks.src, src]),
            dst=np.concatenate([to, dst]),
            size_bytes=np.concatenate([tasks.size_bytes, tasks.size_bytes[owner]]),
            latency_steps=np.concatenate([steps, steps[owner]]),
            priority=np.concatenate([tasks.priority, tasks.priority[tasks.compute_tasks + owner]]),
            startup_us=np.concatenate([startup_us, startup_us[owner] if len(startup_us) else startup_us]),
            kind=None if kind is None else np.concatenate([kind, kind[owner]]),
            succ_start=succ_start,
            successors=successors,
        )


@frozen(kw_only=True, eq=False)
class RingForwarding(Forwarding):
    """GPUs in a ring, whose circuits span at most `reach_hops` segments, either way."""

    reach_hops: int

    def waypoints(self, src: int, dst: int) -> list[int]:
        """Return the GPUs that a transfer passes, both ends included: as few as can be, equally far apart.

        It goes the shorter way round, on even terms the way of rising numbers.

        >>> RingForwarding(reach_hops=4, gpus=32).waypoints(2, 12)
        [2, 5, 8, 12]
        >>> RingForwarding(reach_hops=4, gpus=32).waypoints(2, 31)
        [2, 31]
        """
        up = (dst - src) % self.gpus
        distance = up if 2 * up <= self.gpus else up - self.gpus
        hops = -(-abs(distance) // self.reach_hops)
        return [int((src + distance * hop // max(hops, 1)) % self.gpus) for hop in range(hops + 1)]

    def distance(self, src: int, dst: int) -> int:
        """Return the segments between two GPUs, the shorter way round."""
        up = (dst - src) % self.gpus
        return min(up, self.gpus - up)

    def _far(self, src: NDArray[np.int32], dst: NDArray[np.int32]) -> NDArray[np.bool_]:
        around = (dst - src) % self.gpus
        return np.asarray(np.minimum(around, self.gpus - around) > self.reach_hops)


@frozen(kw_only=True, eq=False)
class GridForwarding(Forwarding):
    """GPUs that exchange rows of experts, in a grid: they pass them on along one axis after the other.

    Along an axis a GPU reaches all others, or on a ring those within `reach_hops`. What other GPUs send each
    other goes straight, or round the ring.
    """

    #: Lengths of the axes, the one of neighbouring ranks last.
    shape: tuple[int, ...]
    #: GPUs of each set that exchanges rows, by rank. [sets, ranks]
    members: NDArray[np.int32]
    #: None: no ring.
    reach_hops: int | None = None
    #: Set and rank of each GPU. [gpus]
    _set: NDArray[np.int64] = attrs.field(init=False)
    _rank: NDArray[np.int64] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        sets, ranks = np.indices(self.members.shape)
        for name, table in (("_set", sets), ("_rank", ranks)):
            of_gpu = np.empty(self.gpus, dtype=np.int64)
            of_gpu[self.members] = table
            object.__setattr__(self, name, of_gpu)

    @classmethod
    def of(
        cls, plan: Plan, gpu_of: NDArray[np.int32], shape: tuple[int, ...], reach_hops: int | None
    ) -> GridForwarding:
        """Return the grid of a plan whose device r of replica g is ``gpu_of[g, r]``."""
        by_rank = gpu_of.reshape(-1, plan.ep, plan.cp, plan.replica_gpus)
        members = np.moveaxis(by_rank, 1, -1).reshape(-1, plan.ep)
        return cls(gpus=plan.gpus, shape=shape, members=members, reach_hops=reach_hops)

    def waypoints(self, src: int, dst: int) -> list[int]:
        """Return the GPUs that a transfer passes, both ends included: the axis of neighbours first.

        >>> members = np.arange(16, dtype=np.int32)[None]
        >>> GridForwarding(gpus=16, shape=(4, 4), members=members).waypoints(1, 14)
        [1, 2, 14]
        >>> GridForwarding(gpus=16, shape=(4, 4), members=members, reach_hops=4).waypoints(1, 14)
        [1, 2, 6, 10, 14]
        """
        if self._set[src] != self._set[dst]:
            return self._straight(src, dst)
        row = self.members[self._set[src]].reshape(self.shape)
        at, to = (list(np.unravel_index(self._rank[gpu], self.shape)) for gpu in (src, dst))
        way = [src]
        for axis in reversed(range(len(self.shape))):
            steps = int(to[axis]) - int(at[axis])
            beside = list(at)
            beside[axis] = at[axis] + (1 if steps > 0 else -1)
            hops = 1 if not steps else self._hops(abs(steps), way[-1], int(row[tuple(beside)]))
            start = int(at[axis])
            for hop in range(1, hops + 1 if steps else 1):
                at[axis] = start + steps * hop // hops
                way += self._straight(way[-1], int(row[tuple(at)]))[1:]
        return way

    def _hops(self, steps: int, gpu: int, beside: int) -> int:
        """Return in how many hops a way of so many steps along an axis is gone: as few as can be."""
        if self.reach_hops is None:
            return 1
        ring = RingForwarding(gpus=self.gpus, reach_hops=self.reach_hops)
        return -(-steps // max(self.reach_hops // ring.distance(gpu, beside), 1))

    def _straight(self, src: int, dst: int) -> list[int]:
        if self.reach_hops is None:
            return [src, dst]
        return RingForwarding(gpus=self.gpus, reach_hops=self.reach_hops).waypoints(src, dst)

    def _far(self, src: NDArray[np.int32], dst: NDArray[np.int32]) -> NDArray[np.bool_]:
        far = self._set[src] == self._set[dst]
        if self.reach_hops is not None:
            far |= RingForwarding(gpus=self.gpus, reach_hops=self.reach_hops)._far(src, dst)
        return np.asarray(far)


def _on_first_groups(
    src: NDArray[np.int64], dst: NDArray[np.int64], gpu_at: NDArray[np.int32], made: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the ends of hops, moved back by whole parts of the job so that the first part sends them."""
    position = np.argsort(gpu_at)
    back = position[src] // made * made
    return gpu_at[position[src] - back], gpu_at[(position[dst] - back) % len(gpu_at)]


def _beside(tasks: TaskGraph, owner: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return successors where new nodes wait for what their owners wait for, and are waited for as these.

    As `TaskGraph.succ_start` and `TaskGraph.successors`; new nodes come after all others, in the order of
    `owner`, which are transfers. [new nodes]

    Examples
    --------
    Task 0 waits for transfer 1 (node 3), which waits for task 2: so does its second half, node 4.

    >>> from sipml_core.model import TaskBuilder
    >>> builder = TaskBuilder(2)
    >>> ends, sent = builder.tasks([0, 1, 1], 1.0, 0, 0), builder.transfers([1], [0], 8.0, 0)
    >>> builder.depend(ends[2:], sent), builder.depend(sent, ends[:1])
    (None, None)
    >>> start, successors = _beside(builder.build(), np.array([0]))
    >>> [successors[a:b].tolist() for a, b in zip(start[:-1], start[1:])]
    [[], [], [3, 4], [0], [0]]
    """
    # New nodes by owner: how many each node owns, and where they begin among these. [nodes + new nodes]
    nodes, count = tasks.nodes, len(owner)
    new = (nodes + np.argsort(owner, kind="stable")).astype(np.int32)
    owns = np.bincount(tasks.compute_tasks + owner, minlength=nodes + count).astype(np.int32)
    begin = np.cumsum(owns, dtype=np.int32) - owns

    # Edges as they are, then with new nodes in place of their owners: where these are waited for, where they
    # wait, and both. [edges]
    before = np.repeat(np.arange(nodes, dtype=np.int32), np.diff(tasks.succ_start))
    waited, after = _with_new(before, tasks.successors, owns, begin, new)
    waits, owner_before = _with_new(tasks.successors, before, owns, begin, new)
    both, new_before = _with_new(after, waited, owns, begin, new)
    first = (before, waited, owner_before, new_before)
    second = (tasks.successors, after, waits, both)
    succ_start = np.zeros(nodes + count + 1, dtype=np.int32)
    np.cumsum(sum(np.bincount(each, minlength=nodes + count) for each in first), out=succ_start[1:])

    key = np.empty(int(succ_start[-1]), dtype=np.int64)
    np.concatenate(first, out=key)
    key <<= 32
    at = 0
    for each in second:
        key[at : at + len(each)] |= each
        at += len(each)
    key.sort()
    return succ_start, key.astype(np.int32)  # the half that counts less


def _with_new(
    one: NDArray[np.int32],
    other: NDArray[np.int32],
    owns: NDArray[np.int32],
    begin: NDArray[np.int32],
    new: NDArray[np.int32],
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return edges at owners, each with every new node of its owner in its place: that, and the other end.

    Node 5 owns the new nodes 8 and 9, the first two of all.

    >>> owns, begin = np.array([0, 0, 0, 0, 0, 2]), np.array([0, 0, 0, 0, 0, 0])
    >>> _with_new(np.array([4, 5]), np.array([0, 1]), owns, begin, np.array([8, 9]))
    (array([8, 9]), array([1, 1]))
    """
    at = np.flatnonzero(owns[one])
    count = owns[one[at]]
    return new[ranges(begin[one[at]], count)], np.repeat(other[at], count)
