"""From operations to sub-ops of about tau: which dimension each op is cut along, and into how many parts.

In: an `OpGraph`, a GPU, `Prices`. Out: a `Layout` and a `BalancedGraph`.
Imports `plugin` and what is below it; knows no topology and no device.
"""

from sipml_core.partition.layouts import Layout, fixed_layout, leader_index, leads, tensor_layout
from sipml_core.partition.overlap import OverlapRule, box_key, boxes
from sipml_core.partition.partitioning import partition
from sipml_core.partition.slices import SliceTimes
from sipml_core.partition.splits import choose_splits, explain
from sipml_core.partition.stages import cut_stages
from sipml_core.partition.statedcuts import layers_of

__all__ = [
    "Layout",
    "OverlapRule",
    "SliceTimes",
    "box_key",
    "boxes",
    "choose_splits",
    "cut_stages",
    "explain",
    "fixed_layout",
    "layers_of",
    "leader_index",
    "leads",
    "partition",
    "tensor_layout",
]
