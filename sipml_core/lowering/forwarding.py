"""Transfers beyond the reach of circuits on a ring: passed on from GPU to GPU, on every segment and port.

A GPU between passes on chunk by chunk what comes in, so that all hops of a transfer go on at the same time.
It has arrived when the last of them has ended, and every one takes its bytes of the ports and circuits at its
ends. Passing on takes no time of the GPU's own.
"""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.model import TaskGraph


@attrs.frozen(kw_only=True, eq=False)
class RingForwarding:
    """GPUs 0 .. N-1 in a ring, whose circuits span at most `reach_hops` segments, either way."""

    reach_hops: int
    gpus: int

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

    def applied(self, tasks: TaskGraph, gpu_at: NDArray[np.int32], made: int) -> TaskGraph:
        """Return the tasks with every transfer out of reach in hops.

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
        around = (tasks.dst - tasks.src) % self.gpus
        far = np.flatnonzero(np.minimum(around, self.gpus - around) > self.reach_hops)
        if not len(far):
            return tasks

        # Ends of all hops of each pair, and which transfers are of it. Hops after the first are new ones.
        pair = tasks.src[far].astype(np.int64) * self.gpus + tasks.dst[far]
        pairs, of = np.unique(pair, return_inverse=True)
        ways = [self.waypoints(*divmod(int(each), self.gpus)) for each in pairs]
        hops = np.array([len(way) - 1 for way in ways])[of.reshape(-1)]
        first_dst = np.array([way[1] for way in ways], dtype=np.int32)[of.reshape(-1)]
        starts = np.concatenate([way[1:-1] for way in ways])
        ends = np.concatenate([way[2:] for way in ways])
        offset = np.cumsum([0, *(len(way) - 2 for way in ways)])[:-1][of.reshape(-1)]

        # The transfer that each new hop belongs to, and its row in `starts` and `ends`. [new hops]
        extra = hops - 1
        owner = np.repeat(far, extra)
        row = np.repeat(offset - (np.cumsum(extra) - extra), extra) + np.arange(extra.sum())
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


def _on_first_groups(
    src: NDArray[np.int64], dst: NDArray[np.int64], gpu_at: NDArray[np.int32], made: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the ends of hops, moved back by whole parts of the job so that the first part sends them."""
    position = np.argsort(gpu_at)
    back = position[src] // made * made
    return gpu_at[position[src] - back], gpu_at[(position[dst] - back) % len(gpu_at)]


def _beside(tasks: TaskGraph, owner: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return successors where new nodes wait for what their owners wait for, and are waited for as these."""
    nodes = tasks.nodes
    before = np.repeat(np.arange(nodes, dtype=np.int64), np.diff(tasks.succ_start))
    after = tasks.successors.astype(np.int64)
    new = nodes + np.arange(len(owner))
    by = np.argsort(tasks.compute_tasks + owner, kind="stable")
    sorted_owner, sorted_new = (tasks.compute_tasks + owner)[by], new[by]
    before, after = _doubled(before, after, sorted_owner, sorted_new)
    after, before = _doubled(after, before, sorted_owner, sorted_new)
    order = np.lexsort((after, before))
    succ_start = np.zeros(nodes + len(owner) + 1, dtype=np.int64)
    np.cumsum(np.bincount(before, minlength=nodes + len(owner)), out=succ_start[1:])
    return succ_start, after[order].astype(np.int32)


def _doubled(
    one: NDArray[np.int64], other: NDArray[np.int64], owner: NDArray[np.int64], new: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return edges, and again those at an owner with each of its new nodes in its place; owners are sorted.

    >>> _doubled(np.array([4, 5]), np.array([0, 1]), np.array([5, 5]), np.array([8, 9]))
    (array([4, 5, 8, 9]), array([0, 1, 1, 1]))
    """
    start, stop = np.searchsorted(owner, one, "left"), np.searchsorted(owner, one, "right")
    count = stop - start
    which = np.repeat(start - (np.cumsum(count) - count), count) + np.arange(count.sum())
    return np.concatenate([one, new[which]]), np.concatenate([other, np.repeat(other, count)])
