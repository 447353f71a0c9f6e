"""The baseline placement: part p of every op on device p."""

from __future__ import annotations

import numpy as np

from sipml_core.errors import InfeasibleError
from sipml_core.interfaces import Placer
from sipml_core.model.balanced import BalancedGraph, Placement, PlacementLimits
from sipml_core.parallel.limits import broken_edges


class Aligned(Placer):
    """Part p of every op on device p, as tensor- and spatial-parallel frameworks place them.

    Ops that are not cut sit on device 0. Nothing is adapted to the limits of the interconnect:
    where an edge breaks them, the placement is refused.
    """

    name = "aligned"
    summary = "Part p of every op on device p; refused where the interconnect's limits forbid it"

    def place(self, graph: BalancedGraph, limits: PlacementLimits) -> Placement:
        """See `Placer.place`."""
        part = np.arange(graph.subops, dtype=np.int32) - graph.first[graph.subop_op]
        if graph.subops and part.max() >= limits.devices:
            raise InfeasibleError(f"an op has {part.max() + 1} parts, more than the {limits.devices} devices")
        broken = broken_edges(graph, part, limits)
        if len(broken):
            edge = broken[0]
            source, target = graph.edge_src[edge], graph.edge_dst[edge]
            names = [graph.graph.ops[graph.subop_op[s]].name for s in (source, target)]
            raise InfeasibleError(
                f"placer 'aligned': {len(broken)} of {len(graph.edge_src)} edges join devices more than "
                f"{limits.range_hops} hops apart, for one {names[0]!r} on device {part[source]} and "
                f"{names[1]!r} on device {part[target]}; use placer 'algorithm1'"
            )
        return Placement(graph=graph, limits=limits, device=part)
