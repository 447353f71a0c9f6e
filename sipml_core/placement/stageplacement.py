"""Placement of a model that is divided into stages: each on devices of its own, by any placer."""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.model import BalancedGraph, OpGraph, Placement, PlacementLimits
from sipml_core.plugin import Placer


def place_in_stages(
    placer: Placer, graph: BalancedGraph, limits: PlacementLimits, part: NDArray[np.int32], stages: int
) -> Placement:
    """Return the placement of every stage on its own `limits.devices` devices.

    The placer sees one stage at a time, with the data that stays inside; what crosses is no limit to it.

    Parameters
    ----------
    limits
        Of the devices of one stage.
    part
        Contiguous part of the model that each op belongs to; part c is on stage c mod `stages`. [ops]

    Examples
    --------
    The worked example on two stages of three devices: f and f' on stage 0, g and g' on stage 1.

    >>> from sipml_core.placement import Aligned
    >>> from sipml_core.testing.worked import placed
    >>> part, limits = np.array([0, 1, 1, 0, 0, 1], dtype=np.int32), PlacementLimits(devices=3)
    >>> aligned = Aligned(Aligned.Options())
    >>> place_in_stages(aligned, placed().graph, limits, part, stages=2).device.tolist()
    [0, 3, 4, 5, 3, 4, 5, 0, 0, 3, 4, 5]
    """
    if stages == 1:
        return attrs.evolve(placer.place(graph, limits), part=part)
    device = np.empty(graph.subops, dtype=np.int32)
    converged, relocations = True, 0
    for stage in range(stages):
        ops = np.flatnonzero(part % stages == stage)
        own, subops = _restricted(graph, ops)
        placement = placer.place(own, limits)
        device[subops] = placement.device + stage * limits.devices
        converged &= placement.converged
        relocations += placement.relocations
    return Placement(
        graph=graph,
        limits=limits,
        device=device,
        stages=stages,
        part=part,
        converged=converged,
        relocations=relocations,
    )


def _restricted(graph: BalancedGraph, ops: NDArray[np.intp]) -> tuple[BalancedGraph, NDArray[np.intp]]:
    """Return the graph of some ops, with the edges between them, and which sub-ops it has. [sub-ops]"""
    whole = graph.graph
    names = {whole.ops[op].name for op in ops}
    own = OpGraph(
        name=whole.name,
        samples=whole.samples,
        precision=whole.precision,
        tensors=whole.tensors,
        ops=tuple(
            op if op.follows is None or op.follows in names else attrs.evolve(op, follows=None)
            for op in (whole.ops[index] for index in ops)
        ),
    )
    is_own = np.zeros(len(whole.ops), dtype=np.bool_)
    is_own[ops] = True
    inside = is_own[graph.subop_op]
    subops = np.flatnonzero(inside)

    # New number of each sub-op [sub-ops]; edges and shards that stay.
    number = np.cumsum(inside, dtype=np.int32) - 1
    edge = np.flatnonzero(inside[graph.edge_src] & inside[graph.edge_dst])
    shard = np.flatnonzero(inside[graph.shard_subop])
    restricted = BalancedGraph(
        graph=own,
        split_dim=tuple(graph.split_dim[op] for op in ops),
        first=np.concatenate([[0], np.cumsum(graph.parts[ops])]),
        duration_us=graph.duration_us[subops],
        edge_src=number[graph.edge_src[edge]],
        edge_dst=number[graph.edge_dst[edge]],
        edge_tensor=graph.edge_tensor[edge],
        edge_lo=graph.edge_lo[edge],
        edge_hi=graph.edge_hi[edge],
        shard_subop=number[graph.shard_subop[shard]],
        shard_tensor=graph.shard_tensor[shard],
        shard_lo=graph.shard_lo[shard],
        shard_hi=graph.shard_hi[shard],
        duplicated=graph.duplicated[ops],
    )
    return restricted, subops
