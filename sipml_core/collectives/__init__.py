"""Algorithms by which GPUs exchange activations inside a group, and sum gradients over replicas.

In: where GPUs are to each other (`GroupShape`, `ReplicaShape`). Out: trees, and tiers of rings.
Imports `plugin` and what is below it.
"""

from sipml_core.collectives.allreduces import Flat, InSwitch, Tiered, TwoTier
from sipml_core.collectives.grouptrees import Chain, Direct, Ring, Tiers
from sipml_core.collectives.linkrings import Rings
from sipml_core.collectives.linktrees import LinkTrees
from sipml_core.collectives.torusrings import TorusRings
from sipml_core.plugin import AllReduce, Exchange

EXCHANGES: tuple[type[Exchange], ...] = (Chain, Ring, Tiers, LinkTrees, Direct)
ALL_REDUCES: tuple[type[AllReduce], ...] = (Flat, TwoTier, Tiered, Rings, TorusRings, InSwitch)

__all__ = [
    "ALL_REDUCES",
    "EXCHANGES",
    "Chain",
    "Direct",
    "Flat",
    "InSwitch",
    "LinkTrees",
    "Ring",
    "Rings",
    "Tiered",
    "Tiers",
    "TorusRings",
    "TwoTier",
]
