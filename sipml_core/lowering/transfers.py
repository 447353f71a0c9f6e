"""Which boxes of which tensors cross devices inside one group, each sent once."""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.lowering.grouptasks import GroupTasks, Indices


@attrs.frozen(kw_only=True, eq=False)
class Transfers:
    """Transfers of one group."""

    #: Device that sends, and device that receives. [transfers]
    sender: Indices
    device: Indices
    #: Tensor, and the box of it that is sent: [lo, hi) per axis. [transfers], [transfers, MAX_RANK]
    tensor: Indices
    lo: Indices
    hi: Indices
    #: [transfers] [bytes]
    size_bytes: NDArray[np.float64]
    #: Position of the first task that waits for each. [transfers]
    position: Indices
    #: Task, and transfer that waits for it. [pairs]
    maker: Indices
    made: Indices
    #: Transfer, and transfer that waits for it. [pairs]
    before: Indices
    after: Indices
    #: Transfer, and task that waits for it. [pairs]
    arrival: Indices
    consumer: Indices


def volume(lo: NDArray[np.int32], hi: NDArray[np.int32]) -> NDArray[np.int64]:
    """Elements of boxes [..., MAX_RANK]."""
    return np.asarray(np.prod(hi.astype(np.int64) - lo, axis=-1), dtype=np.int64)


def merged_boxes(
    lo: Indices, hi: Indices, key: NDArray[np.int64]
) -> tuple[Indices, Indices, Indices, Indices]:
    """Boxes to send so that everyone with the same key gets what it needs.

    Boxes of one key become their bounding box if it is no larger than all of them together
    (always so if they are equal or nested); if it is larger they stay apart, less those inside others.

    Returns
    -------
    box_lo, box_hi, member, box_of
        The boxes; one row of each box; the box that covers each row.
    """
    order = np.argsort(key, kind="stable")
    starts = np.flatnonzero(np.concatenate([[True], np.diff(key[order]) != 0])) if len(key) else order
    box_lo = np.minimum.reduceat(lo[order], starts, axis=0) if len(key) else lo
    box_hi = np.maximum.reduceat(hi[order], starts, axis=0) if len(key) else hi
    box_of = np.empty(len(key), dtype=np.int32)
    box_of[order] = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(key))))
    largest = np.zeros(len(starts), dtype=np.int64)
    np.maximum.at(largest, box_of, volume(lo, hi))
    extra: list[tuple[Indices, Indices, int]] = []
    for box in np.flatnonzero(volume(box_lo, box_hi) > largest):
        rows = order[starts[box] : starts[box + 1]] if box + 1 < len(starts) else order[starts[box] :]
        apart, cover = _apart(lo[rows], hi[rows])
        if volume(box_lo[box], box_hi[box]) <= volume(lo[rows[apart]], hi[rows[apart]]).sum():
            continue
        numbers = np.array([box, *range(len(starts) + len(extra), len(starts) + len(extra) + len(apart) - 1)])
        box_lo[box], box_hi[box] = lo[rows[apart[0]]], hi[rows[apart[0]]]
        extra += [(lo[rows[i]], hi[rows[i]], int(rows[i])) for i in apart[1:]]
        box_of[rows] = numbers[cover]
    return (
        np.concatenate([box_lo, *(row[0][None] for row in extra)]),
        np.concatenate([box_hi, *(row[1][None] for row in extra)]),
        np.concatenate([order[starts], np.array([row[2] for row in extra], dtype=np.int64)]).astype(np.int32),
        box_of,
    )


def _apart(lo: Indices, hi: Indices) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Boxes that lie in no other, and the one of these that covers each box."""
    inside = np.all((lo[:, None] >= lo[None]) & (hi[:, None] <= hi[None]), axis=-1)
    twin = inside & inside.T
    earlier = np.tril(np.ones_like(inside), -1)
    covered = np.any((inside & ~twin) | (twin & earlier), axis=1)
    apart = np.flatnonzero(~covered)
    return apart, np.argmax(inside[:, apart], axis=1)


def plan_transfers(tasks: GroupTasks) -> Transfers:
    """Send each tensor box once from the task that makes it to each device that needs it.

    Forward and backward consumers of one activation on one device share the transfer.
    """
    remote = np.flatnonzero(tasks.device[tasks.edge_src] != tasks.device[tasks.edge_dst])
    src, dst = tasks.edge_src[remote], tasks.edge_dst[remote]
    tensor, device = tasks.edge_tensor[remote], tasks.device[dst]
    tensors = tasks.graph.graph.tensors
    key = (src.astype(np.int64) * len(tensors) + tensor) * tasks.placement.limits.devices + device
    lo, hi, member, box_of = merged_boxes(tasks.edge_lo[remote], tasks.edge_hi[remote], key)
    element_bytes = np.array([t.element_bytes for t in tensors], dtype=np.float64)
    position = np.full(len(member), np.iinfo(np.int32).max, dtype=np.int32)
    np.minimum.at(position, box_of, tasks.position[dst])
    none = np.zeros(0, dtype=np.int32)
    return Transfers(
        sender=tasks.device[src[member]],
        device=device[member],
        tensor=tensor[member],
        lo=lo,
        hi=hi,
        size_bytes=volume(lo, hi) * element_bytes[tensor[member]],
        position=position,
        maker=src[member],
        made=np.arange(len(member), dtype=np.int32),
        before=none,
        after=none,
        arrival=box_of,
        consumer=dst,
    )
