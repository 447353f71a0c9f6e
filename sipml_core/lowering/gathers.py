"""Parameters that replicas share (ZeRO-3): which a device gathers together, and when in each pass.

A unit is what one device has of one bucket. A pass over a part of the model gathers each of its units once,
forward and backward, in the order of first use, and drops it after its last use there.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import frozen
from sipml_core.lowering.gradients import Bucket
from sipml_core.lowering.grouptasks import GroupTasks, Indices
from sipml_core.lowering.passtasks import PassTasks, part_and_kind
from sipml_core.lowering.schedules import PassKind
from sipml_core.model import Plan, precision, ranges


@frozen(kw_only=True, eq=False)
class PassGathers:
    """What one kind of pass gathers: entries by device, those of a device in the order of first use."""

    #: Unit, and the device that gathers it. [entries]
    unit: Indices
    device: Indices
    #: First and last task that use it. [entries]
    first_task: Indices
    last_task: Indices
    #: Task of the pass on the device just before the first one that uses it; -1: none. [entries]
    before: Indices
    #: Entry, and task that waits for it. [pairs]
    entry: Indices
    user: Indices
    #: Devices that have tasks of the pass, and the last task of each. [devices]
    devices: Indices
    last_of: Indices


@frozen(kw_only=True, eq=False)
class Gathers:
    """Units of a replica, and what each kind of pass gathers of them."""

    #: Replicas of the job, each of which has all units.
    replicas: int
    #: Bucket of each unit, and the device that has it. [units]
    bucket: Indices
    device: Indices
    #: Whole parameters of each unit. [units] [bytes]
    size_bytes: NDArray[np.float64]
    #: Replicas among which each unit is shared: all, or those that have the same experts. [units]
    sharers: Indices
    #: By row of `PassTasks`.
    rows: tuple[PassGathers, ...]

    @property
    def of_experts(self) -> NDArray[np.bool_]:
        """Return which units are experts that are spread over replicas. [units]"""
        return self.sharers < self.replicas

    @property
    def gathered_bytes(self) -> float:
        """Return what all GPUs get of units, as often as one micro-batch gathers them."""
        copies = self.replicas - self.replicas // self.sharers
        return float(sum((copies * self.size_bytes)[row.unit].sum() for row in self.rows))

    @classmethod
    def of(cls, group: GroupTasks, passes: PassTasks, buckets: list[Bucket], plan: Plan) -> Gathers:
        """Return the units of a replica. Tasks that use one are those of the ops that make its gradients.

        Backward tasks count whether they read the parameters or only make their gradients, as in FSDP, which
        gathers a unit before it goes back through it.

        Examples
        --------
        The worked example: device 0 has w and a part of v (bucket 2), devices 1 and 2 a part of v each
        (buckets 0 and 1). Forward, f (task 0) is the first that needs its parameters, g on device 1 (task 2)
        the first there.

        >>> from sipml_core.lowering.gradients import plan_buckets
        >>> from sipml_core.lowering.grouptasks import group_tasks
        >>> from sipml_core.testing.worked import placed
        >>> tasks, plan = group_tasks(placed(), recompute="none"), Plan(mp=3, dp=2, global_batch=2, zero=3)
        >>> buckets = plan_buckets(tasks, 25e6, placed().limits)
        >>> found = Gathers.of(tasks, PassTasks.of(tasks, plan), buckets, plan)
        >>> found.bucket.tolist(), found.device.tolist(), found.size_bytes.tolist()
        ([0, 1, 2], [1, 2, 0], [2.0, 2.0, 10.0])
        >>> forward, backward, _ = found.rows
        >>> forward.unit.tolist(), forward.first_task.tolist(), forward.before.tolist()
        ([2, 0, 1], [0, 2, 3], [-1, -1, -1])
        >>> list(zip(backward.unit[backward.entry].tolist(), backward.user.tolist()))
        [(0, 5), (1, 6), (2, 4), (2, 7)]
        """
        held = precision(group.graph.graph.precision)
        # Units, one for each bucket and member; pairs of a unit and (device, op) that has its gradients.
        bucket = np.repeat(np.arange(len(buckets)), [len(b.devices) for b in buckets]).astype(np.int32)
        device = np.concatenate([b.devices for b in buckets]).astype(np.int32)
        elements = np.array([b.size_bytes for b in buckets]) / plan.gradient_bytes(held)
        sharers = np.array([plan.expert_replicas if b.of_experts else plan.replicas for b in buckets])
        own_op = _op_on_device(group, _leaders(group))
        unit, op = _unit_ops(group, buckets, own_op)

        # Every task forward or backward of these ops uses the unit. [pairs]
        kind = part_and_kind(passes.row)[1]
        uses = (kind == PassKind.FORWARD) | (kind == PassKind.BACKWARD)
        works = np.flatnonzero(uses[: group.works]).astype(np.int32)
        used, which = _joined(unit, op, own_op[works])
        user = works[which]
        return cls(
            replicas=plan.replicas,
            bucket=bucket,
            device=device,
            sharers=sharers[bucket].astype(np.int32),
            size_bytes=elements[bucket] * held.parameter_bytes,
            rows=tuple(
                _of_pass(
                    group, device, np.flatnonzero(passes.row == row).astype(np.int32),
                    used[passes.row[user] == row], user[passes.row[user] == row],
                )
                for row in range(len(passes.sources))
            ),
        )  # fmt: skip

    def most_bytes(self, group: GroupTasks) -> NDArray[np.float64]:
        """Return the most that each device has gathered at once. [devices] [bytes]

        A unit is there from when the one before it is first used, to its own last use. What one replica alone
        has is kept, not gathered.
        """
        most = np.zeros(group.placement.devices)
        for row in self.rows:
            if not len(row.unit):
                continue
            follows = np.append(False, row.device[1:] == row.device[:-1])
            first_use = group.position[row.first_task]
            begins = np.where(follows, np.roll(first_use, 1), first_use)
            size_bytes = np.where(self.sharers > 1, self.size_bytes, 0.0)[row.unit]

            # Begins and ends in order, device by device; what ends does so after what begins there.
            at = np.concatenate([begins, group.position[row.last_task]])
            ends = np.repeat([False, True], len(begins))
            on = np.tile(row.device, 2)
            order = np.lexsort((ends, at, on))
            there = np.cumsum(np.concatenate([size_bytes, -size_bytes])[order])
            np.maximum.at(most, on[order], there)
        return most


def _leaders(group: GroupTasks) -> NDArray[np.int64]:
    """Return the op that each op follows, itself if none. [ops]"""
    ops = group.graph.graph.ops
    number = {op.name: index for index, op in enumerate(ops)}
    return np.array([number[op.follows or op.name] for op in ops])


def _op_on_device(group: GroupTasks, leader: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a number for the leading op and the device of each task. [tasks]"""
    return np.asarray(group.device.astype(np.int64) * len(leader) + leader[group.op])


def _unit_ops(
    group: GroupTasks, buckets: list[Bucket], own_op: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return pairs of a unit and an op on its device that has gradients of it. [pairs], [pairs]"""
    units, ops, first = [], [], 0
    for bucket in buckets:
        tasks = np.concatenate([bucket.producers, bucket.consumers])
        column = np.full(group.placement.devices, -1)
        column[list(bucket.devices)] = np.arange(len(bucket.devices))
        member = column[group.device[tasks]]
        units.append(first + member[member >= 0])
        ops.append(own_op[tasks[member >= 0]])
        first += len(bucket.devices)
    pairs = np.unique(np.stack([np.concatenate(units), np.concatenate(ops)]), axis=1)
    return pairs[0], pairs[1]


def _joined(
    unit: NDArray[np.int64], key: NDArray[np.int64], other: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return every pair of a unit and an index into `other` that have the same key. [pairs], [pairs]

    >>> _joined(np.array([0, 1]), np.array([7, 8]), np.array([8, 7, 8]))
    (array([0, 1, 1]), array([1, 0, 2]))
    """
    order = np.argsort(other, kind="stable")
    start, stop = (np.searchsorted(other[order], key, side=side) for side in ("left", "right"))
    counts = stop - start
    return np.repeat(unit, counts), order[ranges(start, counts)]


def _of_pass(
    group: GroupTasks,
    device: Indices,
    tasks: Indices,
    used: NDArray[np.int64],
    user: Indices,
) -> PassGathers:
    """Return the gathers of one kind of pass, from its tasks and pairs of a unit and a task that uses it."""
    position = group.position.astype(np.int64)
    order = np.lexsort((position[user], used))
    used, user = used[order], user[order]
    starts = np.flatnonzero(np.append(True, used[1:] != used[:-1])) if len(used) else np.zeros(0, np.intp)
    unit, first = used[starts], user[starts]
    last = user[np.append(starts[1:], len(used)) - 1] if len(used) else user

    # Entries by device, then first use; `place` is where each then stands. [entries]
    by = np.lexsort((position[first], device[unit]))
    place = np.empty(len(by), dtype=np.int32)
    place[by] = np.arange(len(by), dtype=np.int32)

    # Tasks of the pass by device, then position; the one before the first that uses each unit.
    span = int(position.max(initial=0)) + 1
    key = group.device[tasks] * span + position[tasks]
    tasks, key = tasks[np.argsort(key)], np.sort(key)
    at = np.searchsorted(key, device[unit[by]] * span + position[first[by]]) - 1
    before = np.where(at >= 0, tasks[at], -1) if len(at) else np.zeros(0, dtype=np.int32)
    before = np.where((before >= 0) & (group.device[before] == device[unit[by]]), before, -1)
    ends = np.flatnonzero(np.append(np.diff(group.device[tasks]) != 0, True)) if len(tasks) else tasks
    entry = place[np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(used))))]
    return PassGathers(
        unit=unit[by].astype(np.int32),
        device=device[unit[by]],
        first_task=first[by].astype(np.int32),
        last_task=last[by].astype(np.int32),
        before=before.astype(np.int32),
        entry=entry,
        user=user.astype(np.int32),
        devices=group.device[tasks[ends]],
        last_of=tasks[ends],
    )
