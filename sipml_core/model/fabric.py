"""The one abstraction for every interconnect: links with capacities, and a route for each pair."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.checks import float64_vector, int32_vector, int64_matrix, int64_vector
from sipml_core.errors import ConfigError
from sipml_core.model.circuits import CircuitControl

#: Links on one route, at most.
MAX_HOPS = 8

#: No link in this column of a route table.
NO_LINK = -1

PairArray = NDArray[np.int32]


def _int64_links(value: Any) -> NDArray[np.int64]:
    """Converter of `Routes.links`: a vector or a matrix."""
    return int64_vector(value) if np.ndim(value) == 1 else int64_matrix(value)


@attrs.frozen(kw_only=True, eq=False)
class Routes:
    """What pairs cross on their way. Row i belongs to the i-th pair asked for.

    Two forms. One path for each pair: `links` is a matrix, and `start` and `weight` are left out. Any
    number of links, and several paths at once: the entries ``start[i]`` to ``start[i + 1] - 1`` are those
    of pair i. A transfer of rate x then takes ``weight * x`` of each link; of a path that carries the part
    w of all bytes, each link has the weight w, and a link of several paths the sum, in one entry or more.

    Examples
    --------
    The second of two pairs sends a quarter of its bytes over link 4, the rest over 5, all over 1 and 9:

    >>> routes = Routes(
    ...     start=[0, 2, 6],
    ...     links=[0, 8, 1, 4, 5, 9],
    ...     weight=[1, 1, 1, 0.25, 0.75, 1],
    ...     latency_us=[0.5, 0.5],
    ... )
    >>> routes.matrix.tolist()
    [[0, 8, -1, -1], [1, 4, 5, 9]]
    >>> Routes(links=[[0, 8, NO_LINK], [1, 4, 9]], latency_us=[0.5, 0.5]).flat().start.tolist()
    [0, 2, 5]
    """

    #: Link ids, padded with NO_LINK; a row of only NO_LINK means the pair cannot talk. [pairs, width]
    #: With `start`, those of all pairs without padding. [entries]
    links: NDArray[np.int64] = attrs.field(converter=_int64_links)
    #: [pairs] [us]
    latency_us: NDArray[np.float64] = attrs.field(converter=float64_vector)
    #: First entry of each pair, and the number of entries. [pairs + 1]
    start: NDArray[np.int64] | None = attrs.field(
        default=None, converter=attrs.converters.optional(int64_vector)
    )
    #: None: 1 everywhere. [entries]
    weight: NDArray[np.float64] | None = attrs.field(
        default=None, converter=attrs.converters.optional(float64_vector)
    )

    def __attrs_post_init__(self) -> None:
        if self.start is None:
            if self.links.ndim != 2 or self.weight is not None:
                raise ConfigError("Routes: links without start are a matrix [pairs, width], without weights")
            return
        start, entries = self.start, len(self.links)
        if self.links.ndim != 1 or not len(start) or start[0] != 0 or start[-1] != entries:
            raise ConfigError(f"Routes.start must go from 0 to the number of links, {entries}")
        if (np.diff(start) < 0).any():
            raise ConfigError("Routes.start must not fall")
        if self.weight is not None and len(self.weight) != entries:
            raise ConfigError(f"Routes.weight must have one value for each of {entries} links")

    @property
    def pairs(self) -> int:
        return len(self.links) if self.start is None else len(self.start) - 1

    def flat(self) -> Routes:
        """The same routes with `start` and `weight`."""
        if self.start is None:
            used = self.links != NO_LINK
            start = np.concatenate([[0], np.cumsum(used.sum(axis=1))])
            return Routes(start=start, links=self.links[used], latency_us=self.latency_us).flat()
        return self if self.weight is not None else attrs.evolve(self, weight=np.ones(len(self.links)))

    @property
    def matrix(self) -> NDArray[np.int64]:
        """The links of each pair, padded with NO_LINK. [pairs, width]"""
        return self.links if self.start is None else padded(self.start, self.links, NO_LINK)


def padded(start: NDArray[np.int64], entries: NDArray[Any], fill: Any) -> NDArray[Any]:
    """Rows ``entries[start[i] : start[i + 1]]`` as a matrix, filled up behind. [rows, width]

    >>> padded(np.array([0, 1, 3]), np.array([7, 8, 9]), -1).tolist()
    [[7, -1], [8, 9]]
    """
    length = np.diff(start)
    used = np.arange(int(length.max(initial=1))) < length[:, None]
    matrix = np.full(used.shape, fill, dtype=entries.dtype)
    matrix[used] = entries
    return matrix


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
            When routes are asked for: a pair's shortest path has more than MAX_HOPS links.
        """
        from sipml_core.model.graph_fabric import fabric_from_graph

        return fabric_from_graph(
            graph, routing=routing, gpus_forward=gpus_forward, port_gbps=port_gbps, **properties
        )

    @cached_property
    def fixed_links(self) -> int:
        return len(self.link_gbps)

    def circuit_link(self, src: PairArray, dst: PairArray) -> NDArray[np.int64]:
        """Ids of the circuit links of ordered pairs. [pairs]"""
        return self.fixed_links + np.asarray(src, np.int64) * self.gpus + dst

    def circuit_pair(self, links: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Source and destination of circuit links: the inverse of `circuit_link`."""
        pair = np.asarray(links, np.int64) - self.fixed_links
        return (pair // self.gpus).astype(np.int32), (pair % self.gpus).astype(np.int32)

    def link_name(self, link: int) -> str:
        if link >= self.fixed_links:
            pair = link - self.fixed_links
            return f"circuit {pair // self.gpus}->{pair % self.gpus}"
        if callable(self.link_names):
            return self.link_names(link)
        return self.link_names[link] if link < len(self.link_names) else f"link {link}"
