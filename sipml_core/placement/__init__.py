"""From sub-ops to devices of a group: Algorithm 1 of the paper, and the aligned baseline.

In: a `BalancedGraph` and `PlacementLimits`. Out: a `Placement`.
Imports `partition` and what is below it; knows no topology.
"""

from sipml_core.placement.algorithm1 import Algorithm1
from sipml_core.placement.aligned import Aligned
from sipml_core.placement.limits import check_reach, expert_grid, grid_peers, placement_limits
from sipml_core.placement.stageplacement import place_in_stages

PLACERS = (Algorithm1, Aligned)

__all__ = [
    "PLACERS",
    "Algorithm1",
    "Aligned",
    "check_reach",
    "expert_grid",
    "grid_peers",
    "place_in_stages",
    "placement_limits",
]
