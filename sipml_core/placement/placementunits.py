"""Sub-ops that sit together, merged into placement units: what a placer has to find devices for.

Backward and optimizer sub-ops sit with the part of the forward op they follow, so only the leading
ops are placed. An edge of a follower binds the units at its ends as an edge of theirs would.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import frozen
from sipml_core.model import BalancedGraph
from sipml_core.partition import leader_index, leads


@frozen(kw_only=True, eq=False)
class PlacementUnits:
    """One unit for each part of a leading op, in topological order, parts together.

    The neighbours of unit s, all those it exchanges data with, are
    `near[start[s] : start[s + 1]]`, in ascending order.
    """

    #: Unit of each sub-op. [sub-ops]
    unit: NDArray[np.int64]
    #: What the leading sub-op takes. [units] [us]
    duration_us: NDArray[np.float64]
    start: NDArray[np.int64]
    near: NDArray[np.int64]
    #: Neighbours that come before the unit, a prefix of its neighbours. [units]
    earlier: NDArray[np.int64]
    #: What the two exchange in a training step. [neighbours] [bytes]
    size_bytes: NDArray[np.float64]
    #: Whether the leading sub-ops themselves exchange data: the later one waits for the earlier.
    waits: NDArray[np.bool_]

    @property
    def count(self) -> int:
        return len(self.duration_us)


def merge(graph: BalancedGraph) -> PlacementUnits:
    """Return the units of a balanced graph."""
    op_of = graph.subop_op
    part = np.arange(graph.subops) - graph.first[op_of]
    leader = leader_index(graph.graph)[op_of]
    representative = graph.first[leader] + np.minimum(part, graph.parts[leader] - 1)
    leading = np.array([leads(op) for op in graph.graph.ops], dtype=np.bool_)[op_of]
    number = np.cumsum(leading) - 1
    unit = number[representative]
    return _with_neighbours(graph, unit, leading)


def _with_neighbours(
    graph: BalancedGraph, unit: NDArray[np.int64], leading: NDArray[np.bool_]
) -> PlacementUnits:
    count = int(leading.sum())
    element_bytes = np.array([tensor.element_bytes for tensor in graph.graph.tensors], dtype=np.float64)
    size = (graph.edge_hi - graph.edge_lo).prod(axis=1, dtype=np.float64) * element_bytes[graph.edge_tensor]
    waits = leading[graph.edge_src] & leading[graph.edge_dst]
    a, b = unit[graph.edge_src], unit[graph.edge_dst]
    apart = a != b
    a, b, size, waits = a[apart], b[apart], size[apart], waits[apart]
    pairs, which = np.unique(np.concatenate((a * count + b, b * count + a)), return_inverse=True)
    which = which.reshape(-1)
    owner, near = np.divmod(pairs, max(count, 1))
    return PlacementUnits(
        unit=unit,
        duration_us=graph.duration_us[leading],
        start=np.searchsorted(owner, np.arange(count + 1)),
        near=near,
        earlier=np.bincount(owner[near < owner], minlength=count),
        size_bytes=np.bincount(which, weights=np.tile(size, 2), minlength=len(pairs)).astype(np.float64),
        waits=np.bincount(which, weights=np.tile(waits, 2), minlength=len(pairs)) > 0,
    )
