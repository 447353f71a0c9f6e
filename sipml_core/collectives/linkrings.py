"""An all-reduce over several rings at once, where GPUs are joined by links of their own, as in a mesh.

As communication libraries do on servers without a switch: every ring visits all members, each ring over
links that the others leave it, and each moves its part of the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import InfeasibleError
from sipml_core.model import LinkTable, ReplicaShape
from sipml_core.plugin import AllReduce, WeightedRing

#: Members, at most, among whose links rings are looked for: all ways round are gone through.
MAX_MEMBERS = 8


class Rings(AllReduce):
    """Rings over the links between the replicas, as many at once as the links have room for."""

    name = "rings"
    summary = "several rings at once over the links between GPUs, each with its part of the bytes"

    def offered(self, shape: ReplicaShape) -> bool:
        """See `AllReduce.offered`: where links without a switch join the replicas in a ring."""
        return 2 < shape.replicas <= MAX_MEMBERS and bool(rings_of(shape.links))

    def tiers(self, shape: ReplicaShape) -> tuple[int, ...]:
        """Return one tier."""
        if shape.replicas > MAX_MEMBERS:
            raise InfeasibleError(
                f"all_reduce 'rings' looks for rings among {MAX_MEMBERS} replicas at most, not "
                f"{shape.replicas}: use 'flat' or 'two-tier'"
            )
        if not rings_of(shape.links):
            raise InfeasibleError(
                f"all_reduce 'rings' needs links without a switch that join all {shape.replicas} replicas "
                "in a ring, and there are none: use 'flat'"
            )
        return (shape.replicas,)

    def rings(self, shape: ReplicaShape) -> tuple[WeightedRing, ...]:
        """Return the rings, each with its part of what all carry together."""
        found = rings_of(shape.links)
        total = sum(gbps for _, gbps in found)
        return tuple((order, gbps / total) for order, gbps in found)


def rings_of(links: LinkTable) -> tuple[tuple[tuple[int, ...], float], ...]:
    """Return rings that the links have room for at the same time, and what each carries. [Gbps]

    The ring that can carry most is taken out of the links, then the next. Of those that carry the same the
    one over the most capacity is taken first, for what it leaves is of less use to others.

    Examples
    --------
    Three GPUs, with links of 2 Gbps from each to the next, and of 1 Gbps the other way round:

    >>> rings_of(((0.0, 2.0, 1.0), (1.0, 0.0, 2.0), (2.0, 1.0, 0.0)))
    (((0, 1, 2), 2.0), ((0, 2, 1), 1.0))
    """
    if not links:
        return ()
    left = np.array(links, dtype=np.float64)
    found: list[tuple[tuple[int, ...], float]] = []
    while True:
        rings = [(_gbps(order, left), order) for order in _ways_round((0,), left)]
        if not rings:
            return tuple(found)
        (gbps, _), order = max(rings, key=lambda ring: ring[0])
        found.append((order, gbps))
        left[list(order), np.roll(order, -1)] -= gbps
        left[left < 1e-9 * np.max(links)] = 0.0


def _ways_round(path: tuple[int, ...], gbps: NDArray[np.float64]) -> Iterator[tuple[int, ...]]:
    """Yield all rings over links that carry something, as continuations of a path from member 0."""
    if len(path) == len(gbps):
        if gbps[path[-1], 0] > 0:
            yield path
        return
    for member in np.flatnonzero(gbps[path[-1]]).tolist():
        if member not in path:
            yield from _ways_round((*path, member), gbps)


def _gbps(order: tuple[int, ...], gbps: NDArray[np.float64]) -> tuple[float, float]:
    """Return what a ring can carry, and the capacity of all of its links together. [Gbps]"""
    along = gbps[list(order), np.roll(order, -1)]
    return float(along.min()), float(along.sum())
