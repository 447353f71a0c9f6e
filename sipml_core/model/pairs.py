"""Ordered pairs of GPUs as single numbers, to sort, look up and count them in bulk."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sipml_core.fields import frozen

_Number = TypeVar("_Number", bound=np.number[Any])


def sorted_unique(values: NDArray[_Number]) -> NDArray[_Number]:
    """Return each value once, ascending, as `np.unique` does, which hashes and is many times slower.

    >>> sorted_unique(np.array([7, 3, 7, 5]))
    array([3, 5, 7])
    """
    ordered = np.sort(values, axis=None)
    new = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return ordered[new]


def parts_of(count: int, size: int = 1 << 18) -> list[slice]:
    """Return slices that make up so many items: what is done with one at a time has no large temporaries.

    >>> parts_of(5, size=2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def ranges(start: NDArray[Any], size: NDArray[Any]) -> NDArray[np.int64]:
    """Return start, start + 1, ... of each of several ranges, one range after the other.

    >>> ranges(np.array([5, 2]), np.array([2, 3])).tolist()
    [5, 6, 2, 3, 4]
    """
    before = np.cumsum(size) - size
    return np.asarray(np.repeat(start - before, size) + np.arange(int(size.sum())))


@frozen
class PairIndex:
    """Numbers the ordered pairs of `gpus` GPUs: pair (src, dst) is ``src * gpus + dst``.

    >>> index = PairIndex(4)
    >>> index.key([0, 2], [3, 1])
    array([3, 9])
    >>> index.ends(np.array([3, 9]))
    (array([0, 2], dtype=int32), array([3, 1], dtype=int32))

    Three transfers of two pairs: the pairs that occur, and which of them each transfer is of.

    >>> index.unique([2, 0, 2], [1, 3, 1])
    (array([3, 9]), array([1, 0, 1], dtype=int32))
    """

    gpus: int

    def key(self, src: ArrayLike, dst: ArrayLike) -> NDArray[np.int64]:
        """Return the number of each pair, in the order of (src, dst). [pairs]"""
        first, second = np.asarray(src, dtype=np.int64), np.asarray(dst, dtype=np.int64)
        return np.asarray(first * self.gpus + second, dtype=np.int64)

    def ends(self, key: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the two ends of each pair. [pairs], [pairs]"""
        return (key // self.gpus).astype(np.int32), (key % self.gpus).astype(np.int32)

    def unique(self, src: ArrayLike, dst: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.integer[Any]]]:
        """Return each pair that occurs once, ascending, and where among these each given pair stands.

        [distinct pairs], [pairs]
        """
        key = self.key(src, dst)
        if self.gpus**2 > 16 * key.size:  # a table of all pairs costs more than a sort
            keys, row = np.unique(key, return_inverse=True)
            return keys, row.reshape(-1)
        occurs = np.zeros(self.gpus**2, dtype=np.bool_)
        occurs[key] = True
        keys = np.flatnonzero(occurs)
        number = np.empty(len(occurs), dtype=np.int32)  # of each pair among those that occur
        number[keys] = np.arange(len(keys))
        return keys, number[key.reshape(-1)]
