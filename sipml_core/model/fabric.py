"""The one abstraction for every interconnect: links with capacities, and a route for each pair."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError
from sipml_core.fields import float64_vector, frozen, int64_vector
from sipml_core.model.circuits import CircuitControl
from sipml_core.model.hints import FabricHints, FabricWords
from sipml_core.model.pairs import PairIndex
from sipml_core.model.routes import NO_LINK, PairArray, Routes


@frozen(kw_only=True, eq=False)
class Fabric:
    """An interconnect of N GPUs: its physics, hints how to use it, and words for reports.

    Links 0 .. F-1 are fixed, with the capacities in `link_gbps`. On a circuit network the ordered
    pair (i, j) also has the circuit link F + i N + j (`circuit_link`), whose capacity a scheduler
    sets while the job runs; routes that use it contain that id.

    Parameters
    ----------
    route
        ``route(src, dst) -> Routes`` for arrays of source and destination GPUs [pairs].
    link_tail, link_head
        Node that each fixed link leaves, and enters [links]. GPU g is node g; switches have the numbers
        from N on. A port, which limits what a GPU sends or receives in all, leaves and enters its GPU.
        With them, a route that does not lead from one link to the next is refused, and the network can
        be drawn; None: not known. A circuit leaves and enters GPUs.
    """

    gpus: int
    link_gbps: NDArray[np.float64] = attrs.field(converter=float64_vector)
    route: Callable[[PairArray, PairArray], Routes]
    circuits: CircuitControl | None = None
    link_tail: NDArray[np.int64] | None = attrs.field(
        default=None, converter=attrs.converters.optional(int64_vector)
    )
    link_head: NDArray[np.int64] | None = attrs.field(
        default=None, converter=attrs.converters.optional(int64_vector)
    )
    hints: FabricHints = attrs.Factory(FabricHints)
    words: FabricWords = attrs.Factory(FabricWords)

    def __attrs_post_init__(self) -> None:
        bad = ~(np.isfinite(self.link_gbps) & (self.link_gbps > 0))
        if bad.any():
            k = int(np.flatnonzero(bad)[0])
            raise ConfigError(
                f"link {self.link_name(k)} must have a positive capacity, got {self.link_gbps[k]} Gbps"
            )
        for name in ("link_tail", "link_head"):
            ends = getattr(self, name)
            if ends is not None and (len(ends) != len(self.link_gbps) or ends.min(initial=0) < 0):
                raise ConfigError(f"{name} must have a node, from 0, for each of {len(self.link_gbps)} links")
        if (self.link_tail is None) != (self.link_head is None):
            raise ConfigError("link_tail and link_head must be given together")
        if self.hints.order is not None and len(self.hints.order) != self.gpus:
            raise ConfigError(f"order must be a permutation of 0..{self.gpus - 1}")
        if self.hints.torus and math.prod(self.hints.torus) != self.gpus:
            sizes = " x ".join(map(str, self.hints.torus))
            raise ConfigError(f"torus of the hints must hold {self.gpus} GPUs, got {sizes}")

    @classmethod
    def from_networkx(
        cls,
        graph: Any,
        *,
        routing: str = "auto",
        gpus_forward: bool = True,
        port_gbps: float | None = None,
        hints: FabricHints | None = None,
        notes: tuple[str, ...] = (),
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
            keeps one path and the pairs spread. "shortest": always the first such link. "spray": a
            pair's bytes go over all of its shortest paths at once, the same part over each. "auto":
            "spray" where every GPU is joined to several planes (switches that no switch joins to the
            others) with the same capacity to and from each, else "ecmp".
        gpus_forward
            False: routes pass through switches only, never through a third GPU.
        port_gbps
            What one GPU sends, and receives, at most over all its edges together; None: the edges
            alone limit it. A port that limits counts as a link of the route. [Gbps]
        notes
            What a user should know of how the request was met.

        Raises
        ------
        ConfigError
            No GPU, GPUs misnumbered, an edge without a positive capacity, a disconnected graph.
        InfeasibleError
            When routes are asked for: all paths of a pair lead through GPUs that do not forward.
        """
        from sipml_core.model.graphlinks import graph_links

        found = graph_links(graph, routing=routing, gpus_forward=gpus_forward, port_gbps=port_gbps)
        return cls(
            gpus=found.gpus,
            link_gbps=found.gbps,
            link_tail=found.tail,
            link_head=found.head,
            route=found.route,
            hints=hints or FabricHints(),
            words=FabricWords(link_names=found.names, notes=notes),
        )

    @classmethod
    def with_ports(
        cls,
        *,
        circuits: CircuitControl,
        port_gbps: float,
        latency_us: float = 0.0,
        hints: FabricHints | None = None,
        notes: tuple[str, ...] = (),
    ) -> Fabric:
        """A circuit network: a route is the egress of the sender, the pair's circuit, the receiver's ingress.

        Links 0 .. N-1 are what each GPU sends on, N .. 2N-1 what each receives on. Pairs that
        `circuits.may_connect` forbids have no route.

        Parameters
        ----------
        port_gbps
            What one GPU sends, and receives, at most. [Gbps]
        latency_us
            Of one route. [us]

        Examples
        --------
        >>> control = CircuitControl(gpus=3, circuit_gbps=50.0, circuits_per_gpu=2)
        >>> fabric = Fabric.with_ports(circuits=control, port_gbps=100.0)
        >>> links = fabric.route(np.array([0]), np.array([2])).matrix[0]
        >>> [fabric.link_name(link) for link in links]
        ['egress 0', 'circuit 0->2', 'ingress 2']
        """
        gpus = circuits.gpus

        def route(src: PairArray, dst: PairArray) -> Routes:
            ingress = gpus + np.asarray(dst, np.int64)
            links = np.column_stack([src, 2 * gpus + PairIndex(gpus).key(src, dst), ingress])
            links[~circuits.may_connect(src, dst)] = NO_LINK
            return Routes(links=links, latency_us=np.full(len(links), latency_us))

        def name(link: int) -> str:
            return f"egress {link}" if link < gpus else f"ingress {link - gpus}"

        ports = np.tile(np.arange(gpus), 2)
        return cls(
            gpus=gpus,
            link_gbps=np.full(2 * gpus, port_gbps),
            link_tail=ports,
            link_head=ports,
            route=route,
            circuits=circuits,
            hints=hints or FabricHints(),
            words=FabricWords(link_names=name, notes=notes),
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

    def link_ends(self, links: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """Node that each link leaves and enters, circuits among them; None: not known. [links]"""
        if self.link_tail is None or self.link_head is None:
            return None
        circuit = links >= self.fixed_links
        tail, head = np.zeros(len(links), np.int64), np.zeros(len(links), np.int64)
        tail[~circuit], head[~circuit] = self.link_tail[links[~circuit]], self.link_head[links[~circuit]]
        tail[circuit], head[circuit] = self.circuit_pair(links[circuit])
        return tail, head

    def link_name(self, link: int) -> str:
        if link >= self.fixed_links:
            pair = link - self.fixed_links
            return f"circuit {pair // self.gpus}->{pair % self.gpus}"
        return self.words.link_name(link)
