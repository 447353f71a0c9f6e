"""Circuits on optical switches: ``plan(traffic, switches=16, link_gbps=125)``."""

from sipml_ocs.circuits import OcsCircuits, OcsPlan
from sipml_ocs.ocs_planning import plan

__all__ = ["OcsCircuits", "OcsPlan", "plan"]
