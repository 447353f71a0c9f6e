"""The one abstraction for every interconnect: links with capacities, and a route for each pair."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError
from sipml_core.fields import float64_vector, int32_vector
from sipml_core.model.circuits import CircuitControl
from sipml_core.model.pairs import PairIndex
from sipml_core.model.routes import PairArray, Routes


@attrs.frozen(kw_only=True, eq=False)
class Fabric:
    """An interconnect of N GPUs.

    Links 0 .. F-1 are fixed, with the capacities in `link_gbps`. On a circuit network the ordered
    pair (i, j) also has the circuit link F + i N + j (`circuit_link`), whose capacity a scheduler
    sets while the job runs; routes that use it contain that id.

    Parameters
    ----------
    route
        ``route(src, dst) -> Routes`` for arrays of source and destination GPUs [pairs].
    degree
        Peers a GPU can talk to at one moment; None: all of them.
    reach_hops
        Largest distance |i - j| on a circle of N between GPUs that can talk; None: any.
    order
        GPU at each position along which groups are laid out (a permutation of 0 .. N-1).
    sharing
        "fair": transfers share links max-min fairly. "bound": they do not share at all, and a run
        takes its physical lower bound: the ideal that nothing beats.
    """

    gpus: int
    link_gbps: NDArray[np.float64] = attrs.field(converter=float64_vector)
    route: Callable[[PairArray, PairArray], Routes]
    #: Names of fixed links, for reports: one for each, or a function of the id.
    link_names: tuple[str, ...] | Callable[[int], str] = ()
    circuits: CircuitControl | None = None
    degree: int | None = None
    reach_hops: int | None = None
    #: GPUs i and j share a server, faster inside than across, if i // server_gpus == j // server_gpus;
    #: None: no servers. Hierarchical collectives use it.
    server_gpus: int | None = None
    order: NDArray[np.int32] | None = attrs.field(
        default=None, converter=attrs.converters.optional(int32_vector)
    )
    sharing: str = "fair"
    #: What a user should know of how the request was met, e.g. a bandwidth rounded down.
    notes: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        bad = ~(np.isfinite(self.link_gbps) & (self.link_gbps > 0))
        if bad.any():
            k = int(np.flatnonzero(bad)[0])
            raise ConfigError(
                f"link {self.link_name(k)} must have a positive capacity, got {self.link_gbps[k]} Gbps"
            )
        if self.order is not None and sorted(self.order.tolist()) != list(range(self.gpus)):
            raise ConfigError(f"order must be a permutation of 0..{self.gpus - 1}")

    @classmethod
    def from_networkx(
        cls,
        graph: Any,
        *,
        routing: str = "ecmp",
        gpus_forward: bool = True,
        port_gbps: float | None = None,
        **properties: Any,
    ) -> Fabric:
        """A fabric from a NetworkX graph of any of its four kinds.

        Every edge needs `gbps` and may have `latency_us` (numbers, or text with a unit) and `place`
        (where it was read, such as "line 3": messages about the edge begin with it). An
        undirected edge is two links, one each way, both of that capacity; parallel edges are links
        of their own. Nodes with the attribute ``gpu=True`` are GPUs, numbered in the order of
        ``graph.nodes``; or give each its number, ``gpu=0``, ``gpu=1``, ... Every other node is a
        switch. Routes have the fewest links; they are found when first asked for.

        Parameters
        ----------
        routing
            "ecmp": at each node, a hash of the pair picks one of the equally good links, so a pair
            keeps one path and the pairs spread. "shortest": always the first such link.
        gpus_forward
            False: routes pass through switches only, never through a third GPU.
        port_gbps
            What one GPU sends, and receives, at most over all its edges together; None: the edges
            alone limit it. A port that limits counts as a link of the route. [Gbps]
        properties
            Other fields of `Fabric`, such as `server_gpus`, `order`, `notes`.

        Raises
        ------
        ConfigError
            No GPU, GPUs misnumbered, an edge without a positive capacity, a disconnected graph.
        InfeasibleError
            When routes are asked for: a pair's shortest path has more than MAX_ROUTE_LINKS links.
        """
        from sipml_core.model.graphroutes import graph_links

        found = graph_links(graph, routing=routing, gpus_forward=gpus_forward, port_gbps=port_gbps)
        return cls(
            gpus=found.gpus,
            link_gbps=found.gbps,
            link_names=found.names,
            route=found.route,
            **properties,
        )

    @cached_property
    def fixed_links(self) -> int:
        return len(self.link_gbps)

    def circuit_link(self, src: PairArray, dst: PairArray) -> NDArray[np.int64]:
        """Ids of the circuit links of ordered pairs. [pairs]"""
        return self.fixed_links + PairIndex(self.gpus).key(src, dst)

    def circuit_pair(self, links: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Source and destination of circuit links: the inverse of `circuit_link`."""
        return PairIndex(self.gpus).ends(np.asarray(links, np.int64) - self.fixed_links)

    def link_name(self, link: int) -> str:
        if link >= self.fixed_links:
            pair = link - self.fixed_links
            return f"circuit {pair // self.gpus}->{pair % self.gpus}"
        if callable(self.link_names):
            return self.link_names(link)
        return self.link_names[link] if link < len(self.link_names) else f"link {link}"
