"""Circuits on optical switches: ``plan(traffic, switches=16, link_gbps=125)``, and `decompose` in time."""

from sipml_ocs.circuits import OcsCircuits, OcsPlan
from sipml_ocs.decomposition import Decomposition, decompose
from sipml_ocs.ocs_planning import plan

__all__ = ["Decomposition", "OcsCircuits", "OcsPlan", "decompose", "plan"]
