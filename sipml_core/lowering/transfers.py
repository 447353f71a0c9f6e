"""Which boxes of which tensors cross devices inside one group, each sent once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import frozen
from sipml_core.lowering.grouptasks import GroupTasks, Indices
from sipml_core.model import ranges, sorted_unique


@frozen(kw_only=True, eq=False)
class Transfers:
    """Transfers of one group."""

    #: Device that sends, and device that receives. [transfers]
    sender: Indices
    device: Indices
    #: Box that each sends. [transfers]
    box: Indices
    #: Of each box its tensor, its place in it, [lo, hi) per axis, and its size. [boxes, MAX_RANK] or [boxes]
    tensor: Indices
    lo: Indices
    hi: Indices
    box_bytes: NDArray[np.float64]
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

    @property
    def size_bytes(self) -> NDArray[np.float64]:
        """Return what each sends. [transfers] [bytes]"""
        return self.box_bytes[self.box]


def volume(lo: NDArray[np.int32], hi: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the elements of boxes. [..., MAX_RANK] -> [...]"""
    elements = np.ones(lo.shape[:-1], dtype=np.int64)
    for axis in range(lo.shape[-1]):
        elements *= hi[..., axis] - lo[..., axis]
    return elements


def merged_boxes(
    lo: Indices, hi: Indices, key: NDArray[np.int64]
) -> tuple[Indices, Indices, Indices, Indices]:
    """Return the boxes to send so that everyone with the same key gets what it needs.

    Boxes of one key become their bounding box if it is no larger than all of them together
    (always so if they are equal or nested); if it is larger they stay apart, less those inside others.

    Parameters
    ----------
    lo, hi
        What each row needs, [lo, hi) per axis. [rows, axes]
    key
        Of each row. [rows]

    Returns
    -------
    box_lo, box_hi, member, box_of
        The boxes [boxes, axes]; one row of each box [boxes]; the box that covers each row [rows].

    Examples
    --------
    On one axis, rows 0 and 1 (key 7) overlap: one box of 3 elements instead of 2 + 2. Rows 2, 3 and 4
    (key 9) would make one of 10 elements: it is cheaper to send [0, 2), which covers row 4, and [9, 10).

    >>> lo, hi = np.array([[0], [1], [0], [9], [1]]), np.array([[2], [3], [2], [10], [2]])
    >>> box_lo, box_hi, member, box_of = merged_boxes(lo, hi, np.array([7, 7, 9, 9, 9]))
    >>> np.hstack([box_lo, box_hi]).tolist()
    [[0, 3], [0, 2], [9, 10]]
    >>> member.tolist(), box_of.tolist()
    ([0, 2, 3], [0, 0, 1, 2, 1])
    """
    if not len(key):
        none = np.zeros(0, dtype=np.int32)
        return lo, hi, none, none

    # Rows by key; the rows of box b are order[starts[b] : starts[b] + counts[b]].
    order = np.argsort(key, kind="stable")
    starts = np.flatnonzero(np.concatenate([[True], np.diff(key[order]) != 0]))
    counts = np.diff(np.append(starts, len(key)))
    box_lo, box_hi = lo[order[starts]], hi[order[starts]]
    several = np.flatnonzero(counts > 1)
    rows = order[ranges(starts[several], counts[several])]
    begins = np.cumsum(counts[several]) - counts[several]
    if len(several):
        for axis in range(lo.shape[1]):
            box_lo[several, axis] = np.minimum.reduceat(lo[:, axis][rows], begins)
            box_hi[several, axis] = np.maximum.reduceat(hi[:, axis][rows], begins)
    box_of = np.empty(len(key), dtype=np.int32)
    box_of[order] = np.repeat(np.arange(len(starts)), counts)

    # Boxes larger than each of their rows may be dearer than what the rows need together.
    elements, together = volume(lo, hi), volume(box_lo, box_hi)
    largest = np.maximum.reduceat(elements[order], starts)
    doubtful = np.flatnonzero(together > largest)
    blocks = _Blocks(lo=lo, hi=hi, elements=elements, order=order)
    at, cover_at = blocks.split(starts[doubtful], counts[doubtful], together[doubtful])
    if not len(at):
        return box_lo, box_hi, order[starts].astype(np.int32), box_of

    # `at`: places in `order` of all rows of split boxes; `cover_at`: the place of the row that covers each.
    # A row that covers itself is a box: the first of its key in place of the bounding box, others at the end.
    own = at[cover_at == at]
    box = box_of[order[own]]
    first = np.concatenate([[True], np.diff(box) != 0])
    number = np.empty(len(key), dtype=np.int64)
    number[own[first]] = box[first]
    number[own[~first]] = len(starts) + np.arange(len(own) - np.count_nonzero(first))
    box_lo[box[first]], box_hi[box[first]] = lo[order[own[first]]], hi[order[own[first]]]
    box_of[order[at]] = number[cover_at]
    extra = order[own[~first]]
    return (
        np.concatenate([box_lo, lo[extra]]),
        np.concatenate([box_hi, hi[extra]]),
        np.concatenate([order[starts], extra]).astype(np.int32),
        box_of,
    )


@frozen(kw_only=True, eq=False)
class _Blocks:
    """Boxes in the order of their keys: those of one key are a block."""

    #: [rows, axes], and elements of each box. [rows]
    lo: Indices
    hi: Indices
    elements: NDArray[np.int64]
    #: Row at each place of the order. [rows]
    order: NDArray[np.intp]

    def split(
        self, starts: NDArray[np.intp], counts: NDArray[np.intp], together: NDArray[np.int64]
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the places of blocks that are better sent apart, and the place of the box that covers each.

        Block b is at the places starts[b] : starts[b] + counts[b], its bounding box has together[b] elements.
        Blocks of equal length are compared together.
        """
        at, cover_at = [np.zeros(0, dtype=np.intp)], [np.zeros(0, dtype=np.intp)]
        for count in sorted_unique(counts).tolist():
            alike = np.flatnonzero(counts == count)
            for chunk in np.array_split(alike, 1 + len(alike) * count**2 // _COMPARED_AT_ONCE):
                # [blocks, count]: the places of each block, and the rows there.
                places = starts[chunk, None] + np.arange(count)
                rows = self.order[places]
                apart, cover = _apart(self.lo[rows], self.hi[rows])
                dearer = together[chunk] > np.sum(self.elements[rows], axis=1, where=apart)
                at.append(places[dearer].reshape(-1))
                cover_at.append(np.take_along_axis(places, cover, axis=1)[dearer].reshape(-1))
        order = np.argsort(np.concatenate(at))
        return np.concatenate(at)[order], np.concatenate(cover_at)[order]


#: Pairs of boxes that are compared in one go. [pairs]
_COMPARED_AT_ONCE = 1 << 20


def _apart(lo: Indices, hi: Indices) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """Return which boxes of a block lie in no other, and the first of these that covers each box.

    Of equal boxes the first counts. [blocks, boxes, axes] -> [blocks, boxes], [blocks, boxes]

    >>> _apart(np.array([[[0], [0], [4]]]), np.array([[[2], [3], [5]]]))
    (array([[False,  True,  True]]), array([[1, 1, 2]]))
    """
    blocks, boxes, axes = lo.shape
    # [a, b, blocks]: whether box a lies in box b. Blocks, the most, come last: side by side in memory.
    inside = np.ones((boxes, boxes, blocks), dtype=np.bool_)
    for axis in range(axes):
        low, high = (np.ascontiguousarray(corner[:, :, axis].T) for corner in (lo, hi))
        if (low != low[0]).any() or (high != high[0]).any():
            inside &= low[:, None] >= low
            inside &= high[:, None] <= high

    # Boxes that lie in a larger one, or equal one before them, are left out.
    twin = inside & inside.swapaxes(0, 1)
    twin &= ~np.tri(boxes, k=-1, dtype=np.bool_)[:, :, None]
    apart = ~np.any(inside & ~twin, axis=1)
    cover = np.empty((boxes, blocks), dtype=np.intp)
    for b in range(boxes - 1, -1, -1):
        np.copyto(cover, b, where=inside[:, b] & apart[b])
    return apart.T, cover.T


def plan_transfers(tasks: GroupTasks) -> Transfers:
    """Return the transfers that send each tensor box once from the task that makes it to each device.

    Forward and backward consumers of one activation on one device share the transfer.

    Examples
    --------
    In the worked example y goes from device 0 to devices 1 and 2, where g and later g' read it, and parts
    of dy come back from g' (tasks 5 and 6). Tasks 2, 5 wait for transfer 0, tasks 3, 6 for 1, task 7 for both
    others.

    >>> from sipml_core.lowering.grouptasks import group_tasks
    >>> from sipml_core.testing.worked import placed
    >>> sent = plan_transfers(group_tasks(placed(), recompute=False))
    >>> sent.sender.tolist(), sent.device.tolist(), sent.size_bytes.tolist()
    ([0, 0, 1, 2], [1, 2, 0, 0], [8.0, 8.0, 8.0, 8.0])
    >>> sent.maker.tolist(), sent.made.tolist()
    ([0, 0, 5, 6], [0, 1, 2, 3])
    >>> sent.arrival.tolist(), sent.consumer.tolist()
    ([0, 1, 0, 1, 2, 3], [2, 3, 5, 6, 7, 7])
    """
    # Data edges between devices: makers, users, what is needed and where. [edges]
    remote = np.flatnonzero(tasks.device[tasks.edge_src] != tasks.device[tasks.edge_dst])
    src, dst = tasks.edge_src[remote], tasks.edge_dst[remote]
    tensor, device = tasks.edge_tensor[remote], tasks.device[dst]
    tensors = tasks.graph.graph.tensors

    # One number for each (maker, tensor, device): what shares transfers. [edges]
    key = (src.astype(np.int64) * len(tensors) + tensor) * tasks.placement.devices + device
    lo, hi, member, box_of = merged_boxes(tasks.edge_lo[remote], tasks.edge_hi[remote], key)
    element_bytes = np.array([t.element_bytes for t in tensors], dtype=np.float64)

    # The first task that waits for each transfer gives it its place. [transfers]
    position = np.full(len(member), np.iinfo(np.int32).max, dtype=np.int32)
    np.minimum.at(position, box_of, tasks.position[dst])
    none = np.zeros(0, dtype=np.int32)
    return Transfers(
        sender=tasks.device[src[member]],
        device=device[member],
        box=np.arange(len(member), dtype=np.int32),
        tensor=tensor[member],
        lo=lo,
        hi=hi,
        box_bytes=volume(lo, hi) * element_bytes[tensor[member]],
        position=position,
        maker=src[member],
        made=np.arange(len(member), dtype=np.int32),
        before=none,
        after=none,
        arrival=box_of,
        consumer=dst,
    )
