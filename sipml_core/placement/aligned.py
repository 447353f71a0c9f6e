"""The baseline placement: equal slices of every op on the same device."""

from __future__ import annotations

import numpy as np

from sipml_core.errors import InfeasibleError
from sipml_core.model import BalancedGraph, Placement, PlacementLimits
from sipml_core.partition import leader_index
from sipml_core.placement.limits import broken_edges
from sipml_core.plugin import Placer


class Aligned(Placer):
    """Part p of P on device floor(p k / P), as tensor- and spatial-parallel frameworks place them.

    With P = k, part p sits on device p; with fewer parts, on the device that has the same slice
    of ops cut in k. Ops that are not cut sit on device 0. Nothing is adapted to the limits of the
    interconnect: where an edge breaks them, the placement is refused.
    """

    name = "aligned"
    summary = "Equal slices of every op on the same device; refused where the interconnect's limits forbid it"

    def place(self, graph: BalancedGraph, limits: PlacementLimits) -> Placement:
        """See `Placer.place`."""
        op = graph.subop_op
        parts = graph.parts[leader_index(graph.graph)[op]]
        if graph.subops and parts.max() > limits.devices:
            raise InfeasibleError(f"an op has {parts.max()} parts, more than the {limits.devices} devices")
        part = np.minimum(np.arange(graph.subops) - graph.first[op], parts - 1)
        device = (part * limits.devices // parts).astype(np.int32)
        broken = broken_edges(graph, device, limits)
        if len(broken):
            edge = broken[0]
            source, target = graph.edge_src[edge], graph.edge_dst[edge]
            names = [graph.graph.ops[op[s]].name for s in (source, target)]
            raise InfeasibleError(
                f"placer 'aligned': {len(broken)} of {len(graph.edge_src)} edges join devices more than "
                f"{limits.range_hops} hops apart, for one {names[0]!r} on device {device[source]} and "
                f"{names[1]!r} on device {device[target]}; use placer 'algorithm1'"
            )
        return Placement(graph=graph, limits=limits, device=device)
