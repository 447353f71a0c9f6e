"""Routes in a graph along the fewest links: one of the shortest paths of a pair, or all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import InfeasibleError
from sipml_core.fields import float64_vector, frozen, int64_vector, one_of
from sipml_core.model.hashing import mixed
from sipml_core.model.routes import NO_LINK, PairArray, Routes

ROUTINGS = ("auto", "ecmp", "shortest", "spray")

#: Distance of a node from which no path leads to a destination.
_FAR = np.int32(2**31 - 1)


@frozen(kw_only=True, eq=False)
class GraphRouter:
    """Routes with the fewest links, found when they are asked for. GPU g is node g."""

    nodes: int
    gpus: int
    #: Where each node stands in the graph. [nodes]
    position: NDArray[np.int64] = attrs.field(converter=int64_vector)
    #: Ends and latency of each link. [links]
    tail: NDArray[np.int64] = attrs.field(converter=int64_vector)
    head: NDArray[np.int64] = attrs.field(converter=int64_vector)
    latency_us: NDArray[np.float64] = attrs.field(converter=float64_vector)
    #: Link that limits what a GPU sends or receives in total, or NO_LINK. [gpus]
    egress: NDArray[np.int64] = attrs.field(converter=int64_vector)
    ingress: NDArray[np.int64] = attrs.field(converter=int64_vector)
    routing: str = attrs.field(validator=one_of(*ROUTINGS))
    gpus_forward: bool
    node_name: Callable[[int], str]
    #: Links to go from each node, by destination node. [nodes]
    distances: dict[int, NDArray[np.int32]] = attrs.Factory(dict)

    def route(self, src: PairArray, dst: PairArray) -> Routes:
        """Routes of pairs of GPUs.

        Raises
        ------
        InfeasibleError
            The paths of a pair lead through other GPUs only, which do not forward.
        """
        return self._route(np.asarray(src, np.int64), np.asarray(dst, np.int64))

    def _route(self, src: NDArray[np.int64], dst: NDArray[np.int64]) -> Routes:
        by_dst = np.argsort(dst, kind="stable")
        starts = np.flatnonzero(np.diff(dst[by_dst], prepend=-1))
        groups = np.split(by_dst, starts[1:]) if len(src) else []
        find = self._sprayed if self.routing == "spray" else self._single
        return find(src, dst, groups)

    def _single(
        self, src: NDArray[np.int64], dst: NDArray[np.int64], groups: list[NDArray[np.intp]]
    ) -> Routes:
        """One path for each pair. `groups`: rows of the pairs with each destination."""
        walks = [self._walks(src[rows], int(dst[rows[0]])) for rows in groups]
        width = max((walk.shape[1] for walk in walks), default=0)
        links = np.full((len(src), width + 2), NO_LINK, dtype=np.int64)
        for rows, walk in zip(groups, walks, strict=True):
            links[rows, 1 : 1 + walk.shape[1]] = walk
        latency = np.where(links == NO_LINK, 0.0, self.latency_us[links]).sum(axis=1)
        links[:, 0], links[:, -1] = self.egress[src], self.ingress[dst]

        # Without gaps, and as narrow as the longest route.
        packed = np.take_along_axis(links, np.argsort(links == NO_LINK, axis=1, kind="stable"), axis=1)
        longest = int((packed != NO_LINK).sum(axis=1).max(initial=1))
        return Routes(links=packed[:, :longest], latency_us=latency)

    def _walks(self, src: NDArray[np.int64], dst: int) -> NDArray[np.int64]:
        """Links from each source to one destination. [pairs, longest]"""
        distance = self._reached(src, dst)
        node = src.copy()
        nearer, first, choices = self._nearer(dst)
        hops = int(distance[node].max())
        walks = np.full((len(src), hops), NO_LINK, dtype=np.int64)
        for hop in range(hops):
            moving = np.flatnonzero(distance[node] > 0)
            at = node[moving]
            chosen = nearer[first[at] + self._choice(src[moving], dst, at, choices[at])]
            walks[moving, hop] = chosen
            node[moving] = self.head[chosen]
        return walks

    def _choice(
        self, src: NDArray[np.int64], dst: int, node: NDArray[np.int64], choices: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Which of the equally good links to take: the first, or one by a hash of the pair and the node."""
        if self.routing == "shortest":
            return np.zeros_like(choices)
        pair = src * self.gpus + dst
        bits = mixed(pair.astype(np.uint64) ^ mixed(self.position[node].astype(np.uint64)))
        return (bits % choices.astype(np.uint64)).astype(np.int64)

    def _sprayed(
        self, src: NDArray[np.int64], dst: NDArray[np.int64], groups: list[NDArray[np.intp]]
    ) -> Routes:
        """All shortest paths of each pair, with equal weights; as late as the latest of them."""
        latency = np.zeros(len(src))
        # Pair, link and weight of what is crossed, ports first and last.
        port = np.arange(len(src))
        entries = [(port, self.egress[src], np.ones(len(src)))]
        for rows in groups:
            pair, link, weight, late = self._spray(src[rows], int(dst[rows[0]]))
            entries.append((rows[pair], link, weight))
            latency[rows] = late
        entries.append((port, self.ingress[dst], np.ones(len(src))))
        pair, link, weight = (np.concatenate(parts) for parts in zip(*entries, strict=True))
        order = np.argsort(pair, kind="stable")
        order = order[link[order] != NO_LINK]
        start = np.concatenate([[0], np.cumsum(np.bincount(pair[order], minlength=len(src)))])
        return Routes(start=start, links=link[order], weight=weight[order], latency_us=latency)

    def _spray(
        self, src: NDArray[np.int64], dst: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """Pair, link and weight of all links on shortest paths [entries]; the latest arrival [pairs]."""
        distance = self._reached(src, dst)
        nearer, first, choices = self._nearer(dst)
        paths = self._paths(dst, distance, nearer)
        latency = np.zeros(len(src))

        # What has come to a node after as many hops: pair, node, its share of the bytes, and how late.
        pair, node, share, late = np.arange(len(src)), src, np.ones(len(src)), np.zeros(len(src))
        found: list[tuple[NDArray[Any], ...]] = []
        while len(pair):
            # Each goes on over all links that lead nearer, in proportion to the paths behind them.
            each = np.repeat(np.arange(len(pair)), choices[node])
            before = np.cumsum(choices[node]) - choices[node]
            link = nearer[first[node[each]] + np.arange(len(each)) - before[each]]
            head = self.head[link]
            weight = share[each] * paths[head] / paths[node[each]]
            found.append((pair[each], link, weight))

            # What meets at a node goes on together.
            key, where = np.unique(pair[each] * self.nodes + head, return_inverse=True)
            arrives = np.zeros(len(key))
            np.maximum.at(arrives, where, late[each] + self.latency_us[link])
            share = np.asarray(np.bincount(where, weights=weight, minlength=len(key)), np.float64)
            pair, node = key // self.nodes, key % self.nodes
            there = node == dst
            np.maximum.at(latency, pair[there], arrives[there])
            pair, node = pair[~there], node[~there]
            share, late = share[~there], arrives[~there]
        pairs, links, weights = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return pairs, links, weights, latency

    def _paths(self, dst: int, distance: NDArray[np.int32], nearer: NDArray[np.int64]) -> NDArray[np.float64]:
        """Shortest paths from each node to the destination. [nodes]"""
        paths = np.zeros(self.nodes)
        paths[dst] = 1.0
        hops = distance[self.tail[nearer]]
        for hop in range(1, int(hops.max(initial=0)) + 1):
            links = nearer[hops == hop]
            paths += np.bincount(self.tail[links], weights=paths[self.head[links]], minlength=self.nodes)
        return paths

    def _nearer(self, dst: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Links that lead one step nearer, by the node they leave; of each node, the first, and how many."""
        distance = self._distance(dst)
        nearer = np.flatnonzero((distance[self.tail] - 1 == distance[self.head]) & self._passable(dst))
        nearer = nearer[np.argsort(self.tail[nearer], kind="stable")]
        choices = np.bincount(self.tail[nearer], minlength=self.nodes)
        return nearer, np.cumsum(choices) - choices, choices

    def _reached(self, src: NDArray[np.int64], dst: int) -> NDArray[np.int32]:
        """Links to go from each node, none of the sources cut off. [nodes]"""
        distance = self._distance(dst)
        far = np.flatnonzero(distance[src] == _FAR)
        if len(far):
            raise self._refusal(int(src[far[0]]), dst)
        return distance

    def _distance(self, dst: int) -> NDArray[np.int32]:
        """Links to go to a GPU; _FAR: none leads there. [nodes]"""
        if dst not in self.distances:
            distance = np.full(self.nodes, _FAR)
            distance[dst] = 0
            passable = self._passable(dst)
            for hop in range(self.nodes):
                reached = (distance[self.head] == hop) & passable & (distance[self.tail] == _FAR)
                if not reached.any():
                    break
                distance[self.tail[reached]] = hop + 1
            self.distances[dst] = distance
        return self.distances[dst]

    def _passable(self, dst: int) -> NDArray[np.bool_]:
        """Links whose head is the destination or a node that forwards. [links]"""
        forwards = np.ones(self.nodes, dtype=bool)
        forwards[: self.gpus] = self.gpus_forward
        forwards[dst] = True
        return forwards[self.head]

    def _refusal(self, src: int, dst: int) -> InfeasibleError:
        return InfeasibleError(
            f"from GPU {src} ({self.node_name(src)}) to GPU {dst} ({self.node_name(dst)}) all paths lead "
            "through other GPUs, and these do not forward (gpus_forward = false)"
        )
