"""2-D torus: a static network. Draw the graph; the rest is `Fabric.from_networkx`."""

from __future__ import annotations

import math

import attrs
import networkx as nx
import numpy as np

from sipml_core.errors import ConfigError
from sipml_core.fields import at_least, option, parse_us
from sipml_core.model import Cluster, Fabric, FabricHints
from sipml_core.plugin import Topology


class Torus(Topology):
    """GPU r C + c sits in row r and column c, with two links along its row and two along its column."""

    name = "torus-2d"
    summary = "2-D torus: four links of B/4 per GPU, no switch"

    @attrs.frozen(kw_only=True)
    class Options:
        rows: int | None = option(
            None, doc="rows; left out: as near to a square as N allows",
            validator=attrs.validators.optional(at_least(1)),
        )  # fmt: skip
        latency_us: float = option(
            0.0, doc="latency of one link", unit="us", converter=parse_us, validator=at_least(0)
        )

    def build(self, cluster: Cluster) -> Fabric:
        rows = self._rows(cluster.gpus)
        columns = cluster.gpus // rows
        #: Both ways along each dimension that has a neighbour in it.
        ports = 2 * ((rows > 1) + (columns > 1))
        graph = nx.MultiGraph()
        graph.add_nodes_from(range(cluster.gpus), gpu=True)
        for gpu in range(cluster.gpus):
            row, column = divmod(gpu, columns)
            right, below = row * columns + (column + 1) % columns, (row + 1) % rows * columns + column
            for peer in {right, below} - {gpu}:
                graph.add_edge(
                    gpu, peer, gbps=cluster.bandwidth_gbps / ports, latency_us=self.options.latency_us
                )
        return Fabric.from_networkx(graph, hints=FabricHints(order=_snake(rows, columns)))

    def _rows(self, gpus: int) -> int:
        rows = self.options.rows
        if rows is None:
            return max(r for r in range(1, math.isqrt(gpus) + 1) if gpus % r == 0)
        if gpus % rows:
            raise ConfigError(f"rows must divide cluster.gpus = {gpus}, got {rows}")
        return rows


def _snake(rows: int, columns: int) -> np.ndarray:
    """GPUs row by row, every other row backwards, so that neighbours in the order are neighbours."""
    grid = np.arange(rows * columns).reshape(rows, columns)
    grid[1::2] = grid[1::2, ::-1]
    return grid.ravel()
