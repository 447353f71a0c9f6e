"""Links and routes from a NetworkX graph: edges become links, shortest paths become routes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any

import attrs
import networkx as nx
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError, InfeasibleError, brief, shown
from sipml_core.fields import at_least, float64_vector, int64_vector, one_of, parse_gbps, parse_us, positive
from sipml_core.model.hashing import mixed
from sipml_core.model.routes import NO_LINK, PairArray, Routes

ROUTINGS = ("auto", "ecmp", "shortest", "spray")

#: Distance of a node from which no path leads to a destination.
_FAR = np.int32(2**31 - 1)


@attrs.frozen(kw_only=True)
class _Link:
    """One direction of one edge."""

    name: str
    tail: int
    head: int
    gbps: float = attrs.field(validator=positive)
    latency_us: float = attrs.field(validator=at_least(0))


@attrs.frozen(kw_only=True, eq=False)
class GraphLinks:
    """Links and routes of a graph: the physics of a fabric."""

    gpus: int
    #: Capacity and name of each link. [links] [Gbps]
    gbps: list[float]
    names: tuple[str, ...]
    #: Node that each link leaves and enters, as `Fabric` numbers nodes. [links]
    tail: NDArray[np.int64]
    head: NDArray[np.int64]
    route: Callable[[PairArray, PairArray], Routes]


def graph_links(graph: Any, *, routing: str, gpus_forward: bool, port_gbps: float | None) -> GraphLinks:
    """Return the links and the router of a graph; see `Fabric.from_networkx`."""
    nodes = list(graph.nodes)
    gpu_nodes = _gpu_nodes(graph, nodes)
    # GPUs come first, in the order of their numbers: node g is GPU g.
    chosen = set(gpu_nodes)
    position = [*gpu_nodes, *(i for i in range(len(nodes)) if i not in chosen)]
    nodes = [nodes[i] for i in position]
    gpus = len(gpu_nodes)
    links = list(_links(graph, {node: i for i, node in enumerate(nodes)}))
    _refuse_parts(graph, nodes[:gpus])
    gbps, names = [link.gbps for link in links], [link.name for link in links]
    tail, head = np.array([(link.tail, link.head) for link in links], np.int64).reshape(-1, 2).T
    if routing == "auto":
        planes = [
            [i for i, node in enumerate(nodes) if node in part] for part in _planes(graph, nodes[gpus:])
        ]
        routing = "spray" if _equal(planes, gpus, tail, head, np.array(gbps)) else "ecmp"
    router = _Router(
        nodes=len(nodes),
        gpus=gpus,
        position=position,
        tail=tail,
        head=head,
        latency_us=[link.latency_us for link in links],
        egress=np.full(gpus, NO_LINK),
        ingress=np.full(gpus, NO_LINK),
        routing=routing,
        gpus_forward=gpus_forward,
        node_name=lambda node: str(nodes[node]),
    )
    if port_gbps is not None:
        out, into = (_limited(end, np.array(gbps), gpus, port_gbps) for end in (tail, head))
        router = attrs.evolve(
            router, egress=_port_links(out, len(gbps)), ingress=_port_links(into, len(gbps) + int(out.sum()))
        )
        names += [f"egress {gpu}" for gpu in np.flatnonzero(out)]
        names += [f"ingress {gpu}" for gpu in np.flatnonzero(into)]
        ports = np.r_[np.flatnonzero(out), np.flatnonzero(into)]
        gbps += [port_gbps] * len(ports)
        tail, head = np.r_[tail, ports], np.r_[head, ports]
    return GraphLinks(gpus=gpus, gbps=gbps, names=tuple(names), tail=tail, head=head, route=router.route)


def _planes(graph: Any, switches: list[Hashable]) -> list[set[Hashable]]:
    """Return the switches that are joined to each other without passing a GPU."""
    alone = graph.subgraph(switches)
    return list((nx.weakly_connected_components if graph.is_directed() else nx.connected_components)(alone))


def _equal(
    planes: list[list[int]],
    gpus: int,
    tail: NDArray[np.int64],
    head: NDArray[np.int64],
    gbps: NDArray[np.float64],
) -> bool:
    """Return whether every GPU is joined to several planes, with the same capacity to and from each.

    Two GPUs (nodes 0 and 1), two switches (2 and 3), a link of 50 from each GPU to each switch and back:

    >>> tail, head = np.array([0, 0, 1, 1, 2, 3, 2, 3]), np.array([2, 3, 2, 3, 0, 0, 1, 1])
    >>> _equal([[2], [3]], 2, tail, head, np.full(8, 50.0))
    True
    >>> _equal([[2], [3]], 2, tail, head, np.array([50.0, 25, 50, 50, 50, 50, 50, 50]))
    False
    """
    joined = []
    for plane in planes:
        inside = np.zeros(max(int(tail.max(initial=0)), int(head.max(initial=0)), *plane) + 1, bool)
        inside[plane] = True
        up, down = inside[head] & (tail < gpus), inside[tail] & (head < gpus)
        each = [
            np.bincount(ends[on], weights=gbps[on], minlength=gpus) for ends, on in ((tail, up), (head, down))
        ]
        if any(capacity.any() for capacity in each):
            joined.append(np.concatenate(each))
    if len(joined) < 2 or not joined[0].all():
        return False
    return all(np.allclose(other, joined[0], rtol=1e-9) for other in joined[1:])


def _gpu_nodes(graph: Any, nodes: list[Hashable]) -> list[int]:
    """Position in `nodes` of each GPU, by GPU number."""
    marked = {i: graph.nodes[node].get("gpu", False) for i, node in enumerate(nodes)}
    marked = {i: bool(mark) if isinstance(mark, np.bool_) else mark for i, mark in marked.items()}
    marked = {i: mark for i, mark in marked.items() if mark is not False and mark is not None}
    if not marked:
        raise ConfigError(
            "the graph has no GPU: mark nodes with gpu=True, or with their number, gpu=0, 1, ..."
        )
    if all(mark is True for mark in marked.values()):
        return list(marked)
    numbers: dict[int, int] = {}
    for i, mark in marked.items():
        if isinstance(mark, bool) or not isinstance(mark, (int, np.integer)):
            raise ConfigError(
                f"node {brief(str(nodes[i]))}: gpu must be True on every GPU or a number on every GPU, "
                f"got {shown(mark)}"
            )
        if int(mark) in numbers:
            first, second = (brief(str(nodes[node])) for node in (numbers[int(mark)], i))
            raise ConfigError(f"nodes {first} and {second} are both GPU {mark}")
        numbers[int(mark)] = i
    missing = set(range(len(numbers))) - set(numbers)
    if missing:
        raise ConfigError(
            f"{len(numbers)} GPUs must be numbered 0..{len(numbers) - 1}, and none is {min(missing)}"
        )
    return [numbers[k] for k in range(len(numbers))]


def _links(graph: Any, position: dict[Hashable, int]) -> Iterator[_Link]:
    """One link for each direction of each edge; parallel edges are told apart by #2, #3, ..."""
    seen: dict[str, int] = {}

    def link(tail: Hashable, head: Hashable, attributes: dict[str, Any]) -> _Link:
        name = f"{tail}->{head}"
        place = f"{attributes['place']}: " if "place" in attributes else ""
        if tail == head:
            raise ConfigError(f"{place}edge {brief(name)} joins a node to itself")
        seen[name] = seen.get(name, 0) + 1
        if seen[name] > 1:
            name = f"{name}#{seen[name]}"
        try:
            return _Link(
                name=name,
                tail=position[tail],
                head=position[head],
                gbps=_quantity(attributes, "gbps", parse_gbps),
                latency_us=_quantity({"latency_us": 0.0, **attributes}, "latency_us", parse_us),
            )
        except ConfigError as error:
            raise ConfigError(f"{place}edge {brief(name)}: {error}") from None

    for tail, head, attributes in graph.edges(data=True):
        yield link(tail, head, attributes)
        if not graph.is_directed():
            yield link(head, tail, attributes)


def _quantity(attributes: dict[str, Any], name: str, parse: Callable[[Any], float]) -> float:
    if name not in attributes:
        raise ConfigError(f"{name} is required")
    value = attributes[name]
    if isinstance(value, np.number):
        value = value.item()
    try:
        return parse(value)
    except ConfigError as error:
        raise ConfigError(f"{name} {error}") from None


def _refuse_parts(graph: Any, gpus: list[Hashable]) -> None:
    """`ConfigError` if some GPU cannot reach another; both parts are named."""
    components = nx.strongly_connected_components if graph.is_directed() else nx.connected_components
    parts = [[gpu for gpu in gpus if gpu in part] for part in components(graph)]
    parts = sorted((part for part in parts if part), key=lambda part: gpus.index(part[0]))
    if len(parts) > 1:
        how = "in both directions " if graph.is_directed() else ""
        raise ConfigError(
            f"the graph is disconnected: no path joins {_some(parts[0])} and {_some(parts[1])} {how}"
            f"({len(parts)} parts)"
        )


def _some(names: list[Hashable]) -> str:
    named = ", ".join(brief(str(name)) for name in names[:3])
    return f"{{{named}{', ...' if len(names) > 3 else ''}}} ({len(names)} GPU{'s' * (len(names) > 1)})"


@attrs.frozen(kw_only=True, eq=False)
class _Router:
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


def _limited(
    end: NDArray[np.int64], gbps: NDArray[np.float64], gpus: int, port_gbps: float
) -> NDArray[np.bool_]:
    """Whether the edges of each GPU together exceed its port, where they end as `end` says. [gpus]"""
    total = np.bincount(end, weights=gbps, minlength=gpus)[:gpus]
    return np.asarray(total > port_gbps * (1 + 1e-9))


def _port_links(limited: NDArray[np.bool_], first: int) -> NDArray[np.int64]:
    """Number of each GPU's port among the links, from `first` on; NO_LINK: its port does not limit. [gpus]

    >>> _port_links(np.array([True, False, True]), 10).tolist()
    [10, -1, 11]
    """
    return np.where(limited, first + np.cumsum(limited) - 1, NO_LINK)
