"""An all-reduce over all links of a torus at once: rings along every dimension, both ways round."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sipml_core.errors import InfeasibleError
from sipml_core.model import ReplicaShape
from sipml_core.plugin import AllReduce, WeightedOrder

#: Pieces of each part where sizes differ: one is on its way along one dimension while others use the rest.
PIECES = 4


class TorusRings(AllReduce):
    """The bytes in 2 D parts on a torus of D dimensions, each summed along its own order of them.

    A part is reduce-scattered along one dimension, what is left of it along the next, and so on, and gathered
    on the way back. The D orders are rotations of one, so that at any time each dimension has one part, and
    every order is taken both ways round (Jain and Sabharwal 2010, "Optimal bucket algorithms for large MPI
    collectives on torus interconnects"). Where all sizes are equal every link is busy all the time:
    2 (n - 1) / n of the bytes at the bandwidth of all links of a GPU, the least that there is.

    Where sizes differ, parts are such that all links carry the same in the end, and go in `PIECES` pieces one
    after the other: the same bound, or a little above it where sizes differ much.
    """

    name = "torus-rings"
    summary = "rings along every dimension of a torus, both ways at once, each with its part of the bytes"

    def offered(self, shape: ReplicaShape) -> bool:
        """See `AllReduce.offered`: where the replicas fill a torus, or dimensions of one."""
        return shape.replicas > 2 and bool(shape.torus)

    def tiers(self, shape: ReplicaShape) -> tuple[int, ...]:
        """Return the sizes of the torus.

        >>> TorusRings(None).tiers(ReplicaShape(replicas=12, devices=2, torus=(3, 4)))
        (3, 4)
        """
        if math.prod(shape.torus) != shape.replicas:
            raise InfeasibleError(
                f"all_reduce 'torus-rings' needs a torus of which the {shape.replicas} replicas fill whole "
                "dimensions, and there is none: use 'flat'"
            )
        return shape.torus or (1,)

    def orders(self, shape: ReplicaShape) -> tuple[WeightedOrder, ...]:
        """Return the rotations of the dimensions, both ways round; between two GPUs both are the same.

        >>> TorusRings(None).orders(ReplicaShape(replicas=9, devices=1, torus=(3, 3)))
        (((0, 1), 1, 0.25), ((0, 1), -1, 0.25), ((1, 0), 1, 0.25), ((1, 0), -1, 0.25))
        """
        sizes = shape.torus
        orders = [(*range(first, len(sizes)), *range(first)) for first in range(len(sizes))] or [(0,)]
        parts = even_parts(orders, sizes) if len(sizes) > 1 else [1.0]
        ways = (1, -1) if max(sizes, default=1) > 2 else (1,)
        pieces = 1 if len(set(sizes)) < 2 else PIECES
        return tuple(
            (order, way, part / (pieces * len(ways)))
            for _ in range(pieces)
            for order, part in zip(orders, parts, strict=True)
            for way in ways
        )


def even_parts(orders: Sequence[tuple[int, ...]], sizes: tuple[int, ...]) -> list[float]:
    """Return parts of the bytes, as many as dimensions, with which links along all of these carry the same.

    Examples
    --------
    On 3 x 6, of one byte that begins along columns of 3 a link there carries 2/3 and one along rows a third
    of 5/6; of a byte that begins along rows 5/6, and a sixth of 2/3 along columns. With x of the first,
    2/3 x + 1/9 (1 - x) = 5/18 x + 5/6 (1 - x) gives x = 0.65.

    >>> [round(part, 9) for part in even_parts([(0, 1), (1, 0)], (3, 6))]
    [0.65, 0.35]
    >>> [round(part, 9) for part in even_parts([(0, 1, 2), (1, 2, 0), (2, 0, 1)], (4, 4, 4))]
    [0.333333333, 0.333333333, 0.333333333]
    """
    if len(set(sizes)) == 1:
        return [1.0 / len(orders)] * len(orders)
    # What a link along each dimension carries of a byte that takes each order. [dimensions, orders]
    carried = np.zeros((len(sizes), len(orders)))
    for column, order in enumerate(orders):
        left = 1.0
        for dimension in order:
            carried[dimension, column] = left * (sizes[dimension] - 1) / sizes[dimension]
            left /= sizes[dimension]
    parts = np.linalg.solve(carried, np.ones(len(sizes)))
    return [float(part) for part in parts / parts.sum()]
