"""A torus, twisted or not, as whole numbers modulo a lattice: every node sees the same around it."""

from __future__ import annotations

import itertools
import math
from functools import cached_property

import attrs
import numpy as np
from numpy.typing import NDArray

#: Steps along each dimension, or coordinates. [..., dimensions]
Vectors = NDArray[np.int64]


@attrs.frozen(eq=False)
class Lattice:
    """Nodes numbered by their coordinates, the last dimension fastest.

    `shift[i, j]`: once round dimension i leads to the node so much further along dimension j > i.

    Examples
    --------
    A 2 x 4 torus, twisted: two steps along dimension 0 are two steps along dimension 1.

    >>> twisted = Lattice((2, 4), np.array([[0, 2], [0, 0]]))
    >>> twisted.index(np.array([[2, 0], [1, -1], [0, 4]])).tolist()
    [2, 7, 0]
    >>> twisted.shortest(7).tolist()
    [[-1, 1], [1, -1]]
    """

    shape: tuple[int, ...]
    shift: NDArray[np.int64]

    @classmethod
    def straight(cls, shape: tuple[int, ...]) -> Lattice:
        """Return the torus without a twist."""
        return cls(shape, np.zeros((len(shape), len(shape)), np.int64))

    @property
    def nodes(self) -> int:
        return math.prod(self.shape)

    def coordinates(self, node: NDArray[np.int64]) -> Vectors:
        """Return the coordinates of nodes. [nodes, dimensions]"""
        return np.stack(np.unravel_index(np.asarray(node), self.shape), axis=-1).astype(np.int64)

    def index(self, vectors: Vectors) -> NDArray[np.int64]:
        """Return the node that each vector from node 0 leads to."""
        left = np.array(vectors, np.int64)
        for i, size in enumerate(self.shape):
            rounds = np.floor_divide(left[..., i], size)
            left[..., i] -= rounds * size
            left += rounds[..., None] * self.shift[i]
        return np.asarray(np.ravel_multi_index(tuple(np.moveaxis(left, -1, 0)), self.shape), np.int64)

    @cached_property
    def _loops(self) -> Vectors:
        """Return vectors that lead back to where they start, up to twice round each dimension."""
        rows = np.diag(self.shape) - self.shift
        counts = np.array(list(itertools.product(range(-2, 3), repeat=len(self.shape))))
        return np.asarray(counts @ rows, np.int64)

    def shortest(self, node: int) -> Vectors:
        """Return all vectors of the fewest steps from node 0 to a node, in order. [vectors, dimensions]"""
        vectors = self.coordinates(np.array(node)) + self._loops
        steps = np.abs(vectors).sum(axis=1)
        return np.unique(vectors[steps == steps.min()], axis=0)


def nearest_cube(nodes: int, dimensions: int) -> tuple[int, ...]:
    """Return the sizes, from the smallest up, whose product is `nodes` and whose sum is the least.

    >>> nearest_cube(64, 3), nearest_cube(24, 2), nearest_cube(7, 2)
    ((4, 4, 4), (4, 6), (1, 7))
    """

    def splits(left: int, dims: int, least: int) -> list[tuple[int, ...]]:
        if dims == 1:
            return [(left,)]
        sizes = (size for size in range(least, math.isqrt(left) + 1) if left % size == 0)
        return [(size, *rest) for size in sizes for rest in splits(left // size, dims - 1, size)]

    return min(splits(nodes, dimensions, 1), key=lambda sizes: (sum(sizes), sizes))


def twisted(shape: tuple[int, ...]) -> Lattice | None:
    """Return the twisted torus of a shape n x .. x 2n; None: the shape has no twist.

    The dimensions of size n come first; once round one of them leads n further along all of size 2n
    (Camarero, Martinez, Beivide 2014, as the TPU v4 has it for 4 x 4 x 8 and 4 x 8 x 8).

    >>> twisted((4, 4, 8)).shift.tolist()
    [[0, 0, 4], [0, 0, 4], [0, 0, 0]]
    >>> twisted((4, 4, 4)) is None
    True
    """
    short, long = shape[0], shape[-1]
    if long != 2 * short or any(size not in (short, long) for size in shape):
        return None
    lattice = Lattice.straight(shape)
    for i, j in itertools.product(range(len(shape)), repeat=2):
        if shape[i] == short and shape[j] == long:
            lattice.shift[i, j] = short
    return lattice
