"""Any network, from a file: a list of links between GPUs and switches, no Python needed."""

from typing import TYPE_CHECKING

from sipml_core.lazy import files_when_asked
from sipml_core.plugin import Deferred, hookimpl

if TYPE_CHECKING:
    from sipml_graph.graphnetwork import Graph

__getattr__ = files_when_asked(__name__, {"graphnetwork": ("Graph",)})

__all__ = ["Graph"]


@hookimpl
def sipml_topologies() -> list[Deferred]:
    return [Deferred("graph", "sipml_graph:Graph")]
