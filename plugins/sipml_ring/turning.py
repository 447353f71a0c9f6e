"""Pairs, values of pairs and circuits turned round a ring, by every multiple of a period."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sipml_ring.lightpaths import Lightpaths


class Turns:
    """The images of sorted pairs under every turn by a period, each image sorted by (src, dst).

    A turn takes pair (src, dst) to (src + period, dst + period), modulo the ring. Destinations that pass
    GPU 0 come first in their row instead of last, and none reaches further than a period. So there are
    three orders: of the first image, of the last, and of all in between.
    """

    def __init__(
        self, src: NDArray[np.int32], dst: NDArray[np.int32], *, gpus: int, period: int, images: int
    ) -> None:
        self._src, self._dst, self._gpus, self.images = src, dst, gpus, images
        #: GPUs by which each image is turned. [images, 1]
        self._turn = np.arange(0, images * period, period, dtype=np.int32)[:, np.newaxis]
        #: Rows of the first image in the order of the second (and those after it), and of the last. [pairs]
        self.middle, self.last = (np.lexsort(((dst + k * period) % gpus, src)) for k in (1, images - 1))

    def src(self) -> NDArray[np.int32]:
        """Return the source of each pair of each image. [images, pairs]"""
        return self._src + self._turn

    def dst(self) -> NDArray[np.int32]:
        """Return the destination of each pair of each image. [images, pairs]"""
        dst = self.each(self._dst) + self._turn
        dst -= (dst >= self._gpus) * np.int32(self._gpus)
        return dst

    def each(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return values of pairs [pairs, ...] for each pair of each image. [images, pairs, ...]"""
        return self.spread(values, values[self.middle], values[self.last])

    def spread(self, first: NDArray[Any], middle: NDArray[Any], last: NDArray[Any]) -> NDArray[Any]:
        """Return values of the first image, of each in between and of the last. [images, ...]"""
        result = np.empty((self.images, *first.shape), first.dtype)
        result[0], result[1:-1], result[-1] = first, middle, last
        return result


def turn_into_themselves(
    src: NDArray[np.int32],
    dst: NDArray[np.int32],
    values: NDArray[np.float64],
    *,
    gpus: int,
    period: int,
    segments: int,
    tolerance: float,
) -> bool:
    """Return whether a turn by `period` takes sorted pairs to each other, and their values, too.

    Of the pairs whose sources are the first `segments` of `gpus` GPUs; `tolerance` is relative.

    Examples
    --------
    >>> src, dst = np.array([0, 1, 2, 3]), np.array([1, 2, 3, 0])
    >>> ring = {"gpus": 4, "segments": 4, "tolerance": 1e-9}
    >>> [turn_into_themselves(src, dst, np.array([5.0, 7.0, 5.0, 7.0]), period=p, **ring) for p in (1, 2)]
    [False, True]
    """
    images = segments // period
    rows = len(src) // images  # pairs of one image, if all have as many
    if rows * images != len(src):
        return False
    if rows == 0:
        return True
    src, dst, values = (column.reshape(images, rows) for column in (src, dst, values))
    turns = Turns(src[0], dst[0], gpus=gpus, period=period, images=images)
    if src[0, -1] >= period or (src != turns.src()).any() or (dst != turns.dst()).any():
        return False
    expected = turns.each(values[0])
    return bool((np.abs(values - expected) <= tolerance * expected).all())


def turned_circuits(first: Lightpaths, *, gpus: int, period: int, segments: int) -> Lightpaths:
    """Return the circuits of all pairs from those of senders 0 to `period` - 1, in the order of pairs."""
    images = segments // period
    turns = Turns(first.src, first.dst, gpus=gpus, period=period, images=images)

    # Circuits follow their pairs. rows: [circuits] row of the pair in the image's order, ascending;
    # order: [circuits] the circuits of the first image in that order.
    rows: list[NDArray[np.int32]] = [first.pair]
    orders: list[Any] = [slice(None)]
    for order in (turns.middle, turns.last):
        row = np.empty(len(order), np.int32)
        row[order] = np.arange(len(order), dtype=np.int32)
        pair = row[first.pair]
        orders.append(np.argsort(pair, kind="stable"))
        rows.append(pair[orders[-1]])
    pairs = turns.spread(*rows)
    pairs += np.arange(images, dtype=np.int32)[:, np.newaxis] * len(first.src)
    return Lightpaths(
        src=turns.src().reshape(-1),
        dst=turns.dst().reshape(-1),
        pair=pairs.reshape(-1),
        direction=turns.spread(*(first.direction[order] for order in orders)).reshape(-1),
        index=turns.spread(*(first.index[order] for order in orders)).reshape(-1),
    )
