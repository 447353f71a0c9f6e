"""Elect-Cluster: servers with an ideal switch inside, joined by a slower electrical network."""

from typing import TYPE_CHECKING

from sipml_core.lazy import files_when_asked
from sipml_core.plugin import Deferred, hookimpl

if TYPE_CHECKING:
    from sipml_elect_cluster.clusternetwork import ElectCluster

__getattr__ = files_when_asked(__name__, {"clusternetwork": ("ElectCluster",)})

__all__ = ["ElectCluster"]


@hookimpl
def sipml_topologies() -> list[Deferred]:
    return [Deferred("elect-cluster", "sipml_elect_cluster:ElectCluster")]
