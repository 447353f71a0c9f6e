"""The overlap rule: what travels between two cut ops is where *held* and *needed* boxes meet.

An op cut into parts touches one box of each tensor per part. A part of the producer holds the box
it writes, a part of the consumer needs the box it reads, and the elements that travel from one to
the other are those in both boxes. Where a producer is cut along a dimension it contracts, every
part holds a full-size partial sum, so every part sends. One rule covers every pair of splits.

Models repeat their layers, so boxes and overlaps are kept by shape (`OverlapRule`), not by name.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import frozen
from sipml_core.model import MAX_RANK, Op, Operand

#: One axis of a tensor under a cut: (low, high) of the whole op, or the axis and the cut's extent.
_AxisKey: TypeAlias = tuple[int, ...]
#: All axes, and how many parts there are: equal keys have equal boxes.
BoxKey: TypeAlias = tuple[tuple[_AxisKey, ...], int]


@frozen(kw_only=True, eq=False)
class Boxes:
    """One box of a tensor for each part of an op: [lo, hi) per axis. [parts, rank]"""

    lo: NDArray[np.int64]
    hi: NDArray[np.int64]

    @cached_property
    def padded(self) -> NDArray[np.int32]:
        """Return lower and upper corners with all axes, see `padded`. [2, parts, MAX_RANK]"""
        return padded(self.lo, self.hi)


@frozen(kw_only=True, eq=False)
class Overlap:
    """Pairs of parts whose boxes meet, in order of source part, then target part. [pairs]"""

    src: NDArray[np.int64]
    dst: NDArray[np.int64]
    #: Where they meet. [pairs, rank]
    lo: NDArray[np.int64]
    hi: NDArray[np.int64]

    @cached_property
    def elements(self) -> NDArray[np.int64]:
        """Return the tensor elements of each pair. [pairs]"""
        return np.asarray((self.hi - self.lo).prod(axis=1), dtype=np.int64)

    @cached_property
    def padded(self) -> NDArray[np.int32]:
        """Return lower and upper corners with all axes, see `padded`. [2, pairs, MAX_RANK]"""
        return padded(self.lo, self.hi)


def padded(lo: NDArray[Any], hi: NDArray[Any]) -> NDArray[np.int32]:
    """Return lower and upper corners with `MAX_RANK` axes; those that a tensor lacks are [0, 1).

    >>> padded(np.array([[0, 3]]), np.array([[2, 8]])).tolist()
    [[[0, 3, 0, 0, 0, 0]], [[2, 8, 1, 1, 1, 1]]]
    """
    count, rank = lo.shape
    corners = np.zeros((2, count, MAX_RANK), dtype=np.int32)
    corners[0, :, :rank] = lo
    corners[1, :, :rank] = hi
    corners[1, :, rank:] = 1
    return corners


def box_key(op: Op, operand: Operand, shape: tuple[int, ...], dim: str | None, parts: int) -> BoxKey:
    """Return what the boxes depend on: nothing else about the op or tensor matters."""
    axes: list[_AxisKey] = []
    for axis, size in zip(operand.axes, shape, strict=True):
        if axis.dim is None:
            axes.append((0, size))
        elif axis.dim != dim or parts == 1:
            axes.append(axis.region(0, op.dims[axis.dim], size))
        else:
            axes.append((axis.num, axis.den, axis.low, axis.high, op.dims[axis.dim], size))
    return tuple(axes), parts


def part_bounds(extent: int, parts: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return start and stop of `parts` equal slices of `extent`, the larger ones first. [parts]"""
    base, extra = divmod(extent, parts)
    index = np.arange(parts, dtype=np.int64)
    start = index * base + np.minimum(index, extra)
    return start, start + base + (index < extra)


def boxes(key: BoxKey) -> Boxes:
    """Return the boxes that `key` describes."""
    axes, parts = key
    lo = np.empty((parts, len(axes)), dtype=np.int64)
    hi = np.empty_like(lo)
    for column, axis in enumerate(axes):
        if len(axis) == 2:
            lo[:, column], hi[:, column] = axis
            continue
        num, den, low, high, extent, size = axis
        start, stop = part_bounds(extent, parts)
        lo[:, column] = ((start * num + low) // den).clip(0, size)
        hi[:, column] = (((stop - 1) * num + high) // den + 1).clip(0, size)
    return Boxes(lo=lo, hi=hi)


def overlap(held: Boxes, needed: Boxes) -> Overlap:
    """Return where the boxes of two ops meet; pairs that share no element are left out."""
    lo = np.maximum(held.lo[:, None, :], needed.lo[None, :, :])
    hi = np.minimum(held.hi[:, None, :], needed.hi[None, :, :])
    src, dst = np.nonzero((lo < hi).all(axis=2))
    return Overlap(src=src, dst=dst, lo=lo[src, dst], hi=hi[src, dst])


class OverlapRule:
    """Boxes and overlaps, computed once for each shape."""

    def __init__(self) -> None:
        self._boxes: dict[BoxKey, Boxes] = {}
        self._overlaps: dict[tuple[BoxKey, BoxKey], Overlap] = {}

    def boxes(self, key: BoxKey) -> Boxes:
        """See `boxes`."""
        found = self._boxes.get(key)
        if found is None:
            found = self._boxes[key] = boxes(key)
        return found

    def overlap(self, held: BoxKey, needed: BoxKey) -> Overlap:
        """See `overlap`."""
        found = self._overlaps.get((held, needed))
        if found is None:
            found = self._overlaps[held, needed] = overlap(self.boxes(held), self.boxes(needed))
        return found
