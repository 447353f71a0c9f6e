"""Circuits on optical switches: ``plan(traffic, switches=16, link_gbps=125)``, and `decompose` in time."""

from typing import TYPE_CHECKING

from sipml_core.lazy import files_when_asked

if TYPE_CHECKING:
    from sipml_ocs.circuits import OcsCircuits, OcsPlan
    from sipml_ocs.decomposition import Decomposition, decompose
    from sipml_ocs.ocs_planning import plan

__getattr__ = files_when_asked(
    __name__,
    {
        "circuits": ("OcsCircuits", "OcsPlan"),
        "decomposition": ("Decomposition", "decompose"),
        "ocs_planning": ("plan",),
    },
)

__all__ = ["Decomposition", "OcsCircuits", "OcsPlan", "decompose", "plan"]
