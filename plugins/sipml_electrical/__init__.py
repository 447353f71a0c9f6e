"""Electrical networks of today: `fat-tree`, `dgx` and `dragonfly`, routed as packets are."""

from sipml_core.plugin import Topology, hookimpl
from sipml_electrical.dgx import Dgx
from sipml_electrical.dragonfly import Dragonfly
from sipml_electrical.fattree import FatTree

__all__ = ["Dgx", "Dragonfly", "FatTree"]


@hookimpl
def sipml_topologies() -> list[type[Topology]]:
    return [FatTree, Dgx, Dragonfly]
