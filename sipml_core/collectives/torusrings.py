"""An all-reduce over all links of a torus at once: rings along every dimension, both ways round."""

from __future__ import annotations

import math

from sipml_core.errors import InfeasibleError
from sipml_core.model import ReplicaShape
from sipml_core.plugin import AllReduce, WeightedOrder


class TorusRings(AllReduce):
    """The bytes in 2 D parts on a torus of D dimensions, each summed along its own order of them.

    A part is reduce-scattered along one dimension, what is left of it along the next, and so on, and gathered
    on the way back. The D orders are rotations of one, so that at any time each dimension has one part, and
    every order is taken both ways round (Jain and Sabharwal 2010, "Optimal bucket algorithms for large MPI
    collectives on torus interconnects"). Where all sizes are equal every link is busy all the time:
    2 (n - 1) / n of the bytes at the bandwidth of all links of a GPU, the least that there is.
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

        >>> TorusRings(None).orders(ReplicaShape(replicas=12, devices=1, torus=(3, 4)))
        (((0, 1), 1, 0.25), ((0, 1), -1, 0.25), ((1, 0), 1, 0.25), ((1, 0), -1, 0.25))
        """
        dimensions = range(len(shape.torus))
        ways = (1, -1) if max(shape.torus, default=1) > 2 else (1,)
        part = 1.0 / (len(dimensions) * len(ways)) if dimensions else 1.0
        return tuple(
            ((*dimensions[first:], *dimensions[:first]), way, part) for first in dimensions for way in ways
        )
