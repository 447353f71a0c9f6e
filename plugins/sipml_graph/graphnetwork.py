"""The topology `graph`: any network of links between GPUs and switches, from a file."""

from __future__ import annotations

from pathlib import Path

import attrs

from sipml_core.errors import ConfigError
from sipml_core.fields import at_least, file_path, one_of, option
from sipml_core.model import Cluster, Fabric, FabricHints
from sipml_core.plugin import Topology
from sipml_graph.edgelist import read_graph


class Graph(Topology):
    """The links of the file, shortest-path routes, and the bandwidth of the cluster as each GPU's port."""

    name = "graph"
    summary = "any network of links and switches, from a CSV, TOML or GraphML file"

    @attrs.frozen(kw_only=True)
    class Options:
        file: str = file_path(
            doc="a .csv with the columns from, to, gbps, latency_us (a blank gbps is the bandwidth of a "
            "GPU) and GPUs named gpu0, gpu1, ..., a .toml with [[edge]] and [[node]] tables, or a .graphml; "
            "a relative name counts from the folder of the experiment file"
        )
        directed: bool = option(
            False,
            doc="every edge is one way; otherwise it is a link in each direction; GraphML says it itself",
        )
        routing: str = option(
            "auto", validator=one_of("auto", "ecmp", "shortest", "spray"),
            doc="ecmp: pairs spread over the shortest paths by a hash; spray: a pair over all of them, the "
            "same part of its bytes over each; shortest: the first one; auto: spray where each GPU is joined "
            "to several equal planes, else ecmp",
        )  # fmt: skip
        gpus_forward: bool = option(True, doc="routes may pass through other GPUs, as in a torus")
        server_gpus: int | None = option(
            None, validator=attrs.validators.optional(at_least(1)),
            doc="GPUs in one server, numbered one server after the other: exchanges and all-reduces may be "
            "hierarchical",
        )  # fmt: skip

    def build(self, cluster: Cluster) -> Fabric:
        path = Path(self.options.file)
        graph = read_graph(path, directed=self.options.directed, default_gbps=cluster.bandwidth_gbps)
        try:
            fabric = Fabric.from_networkx(
                graph,
                routing=self.options.routing,
                gpus_forward=self.options.gpus_forward,
                port_gbps=cluster.bandwidth_gbps,
                hints=self._hints(),
            )
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None
        if fabric.gpus != cluster.gpus:
            raise ConfigError(f"{path} joins {fabric.gpus} GPUs, but cluster.gpus is {cluster.gpus}")
        return fabric

    def _hints(self) -> FabricHints:
        size = self.options.server_gpus
        return FabricHints(tiers=(("server", size),) if size else ())
