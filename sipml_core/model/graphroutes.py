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
from sipml_core.model.routes import MAX_ROUTE_LINKS, NO_LINK, PairArray, Routes

ROUTINGS = ("ecmp", "shortest")

#: Distance of a node that cannot reach a destination within MAX_ROUTE_LINKS.
_FAR = np.int8(MAX_ROUTE_LINKS + 1)


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
    route: Callable[[PairArray, PairArray], Routes]


def graph_links(graph: Any, *, routing: str, gpus_forward: bool, port_gbps: float | None) -> GraphLinks:
    """Return the links and the router of a graph; see `Fabric.from_networkx`."""
    nodes = list(graph.nodes)
    gpu_nodes = _gpu_nodes(graph, nodes)
    links = list(_links(graph, {node: i for i, node in enumerate(nodes)}))
    _refuse_parts(graph, [nodes[node] for node in gpu_nodes])
    router = _Router(
        nodes=len(nodes),
        gpu_node=gpu_nodes,
        tail=[link.tail for link in links],
        head=[link.head for link in links],
        latency_us=[link.latency_us for link in links],
        egress=np.full(len(gpu_nodes), NO_LINK),
        ingress=np.full(len(gpu_nodes), NO_LINK),
        routing=routing,
        gpus_forward=gpus_forward,
        node_name=lambda node: str(nodes[node]),
    )
    gbps, names = [link.gbps for link in links], [link.name for link in links]
    if port_gbps is not None:
        router, ports = _with_ports(router, np.array(gbps), port_gbps)
        gbps += [port_gbps] * len(ports)
        names += ports
    return GraphLinks(gpus=len(gpu_nodes), gbps=gbps, names=tuple(names), route=router.route)


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
    """Routes with the fewest links, found when they are asked for."""

    nodes: int
    gpu_node: NDArray[np.int64] = attrs.field(converter=int64_vector)
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
    distances: dict[int, NDArray[np.int8]] = attrs.Factory(dict)

    def route(self, src: PairArray, dst: PairArray) -> Routes:
        """Routes of pairs of GPUs.

        Raises
        ------
        InfeasibleError
            The shortest path of a pair has more than MAX_ROUTE_LINKS links, or leads through other GPUs
            only, which do not forward.
        """
        return self._route(np.asarray(src, np.int64), np.asarray(dst, np.int64))

    def _route(self, src: NDArray[np.int64], dst: NDArray[np.int64]) -> Routes:
        links = np.full((len(src), MAX_ROUTE_LINKS + 2), NO_LINK, dtype=np.int64)
        by_dst = np.argsort(dst, kind="stable")
        starts = np.flatnonzero(np.diff(dst[by_dst], prepend=-1))
        for rows in np.split(by_dst, starts[1:]) if len(src) else ():
            links[rows, 1:-1] = self._walks(src[rows], int(dst[rows[0]]))
        latency = np.where(links == NO_LINK, 0.0, self.latency_us[links]).sum(axis=1)
        links[:, 0], links[:, -1] = self.egress[src], self.ingress[dst]
        return Routes(links=self._packed(links, src, dst), latency_us=latency)

    def _packed(
        self, links: NDArray[np.int64], src: NDArray[np.int64], dst: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Without gaps, and as narrow as the longest route."""
        packed = np.take_along_axis(links, np.argsort(links == NO_LINK, axis=1, kind="stable"), axis=1)
        longest = (packed != NO_LINK).sum(axis=1)
        if len(src) and longest.max() > MAX_ROUTE_LINKS:
            worst = int(longest.argmax())
            raise self._refusal(
                int(src[worst]), int(dst[worst]), f"{longest[worst]} links, its ports included"
            )
        return packed[:, : max(longest.max(initial=0), 1)]

    def _walks(self, src: NDArray[np.int64], dst: int) -> NDArray[np.int64]:
        """Links from each source to one destination. [pairs, MAX_ROUTE_LINKS]"""
        target = int(self.gpu_node[dst])
        distance = self._distance(target)
        node = self.gpu_node[src]
        far = np.flatnonzero(distance[node] == _FAR)
        if len(far):
            raise self._refusal(int(src[far[0]]), dst, f"no path of at most {MAX_ROUTE_LINKS} links")
        # Links that lead one step nearer, grouped by the node they leave.
        nearer = np.flatnonzero((distance[self.tail] == distance[self.head] + 1) & self._passable(target))
        nearer = nearer[np.argsort(self.tail[nearer], kind="stable")]
        choices = np.bincount(self.tail[nearer], minlength=self.nodes)
        first = np.cumsum(choices) - choices
        walks = np.full((len(src), MAX_ROUTE_LINKS), NO_LINK, dtype=np.int64)
        for hop in range(int(distance[node].max())):
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
        pair = src * len(self.gpu_node) + dst
        mixed = _mix(pair.astype(np.uint64) ^ _mix(node.astype(np.uint64)))
        return (mixed % choices.astype(np.uint64)).astype(np.int64)

    def _distance(self, target: int) -> NDArray[np.int8]:
        """Links to go to `target`, at most MAX_ROUTE_LINKS. [nodes]"""
        if target not in self.distances:
            distance = np.full(self.nodes, _FAR)
            distance[target] = 0
            passable = self._passable(target)
            for hop in range(MAX_ROUTE_LINKS):
                reached = (distance[self.head] == hop) & passable & (distance[self.tail] == _FAR)
                if not reached.any():
                    break
                distance[self.tail[reached]] = hop + 1
            self.distances[target] = distance
        return self.distances[target]

    def _passable(self, target: int) -> NDArray[np.bool_]:
        """Links whose head is the target or a node that forwards. [links]"""
        forwards = np.ones(self.nodes, dtype=bool)
        forwards[self.gpu_node] = self.gpus_forward
        forwards[target] = True
        return forwards[self.head]

    def _refusal(self, src: int, dst: int, found: str) -> InfeasibleError:
        forward = "" if self.gpus_forward else ", and GPUs do not forward (gpus_forward = false)"
        return InfeasibleError(
            f"from GPU {src} ({self.node_name(int(self.gpu_node[src]))}) to GPU {dst} "
            f"({self.node_name(int(self.gpu_node[dst]))}) there is {found}{forward}; "
            f"routes have at most {MAX_ROUTE_LINKS} links"
        )


def _with_ports(router: _Router, gbps: NDArray[np.float64], port_gbps: float) -> tuple[_Router, list[str]]:
    """The router with a port link, one more hop, wherever a GPU's edges together exceed its port."""

    def limited(end: NDArray[np.int64]) -> NDArray[np.bool_]:
        total = np.bincount(end, weights=gbps, minlength=router.nodes)[router.gpu_node]
        return np.asarray(total > port_gbps * (1 + 1e-9))

    out, into = limited(router.tail), limited(router.head)
    egress = np.where(out, len(gbps) + np.cumsum(out) - 1, NO_LINK)
    ingress = np.where(into, len(gbps) + out.sum() + np.cumsum(into) - 1, NO_LINK)
    names = [f"egress {gpu}" for gpu in np.flatnonzero(out)]
    names += [f"ingress {gpu}" for gpu in np.flatnonzero(into)]
    return attrs.evolve(router, egress=egress, ingress=ingress), names


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finalizer (Steele, Lea, Flood 2014): every bit of the input moves every bit out."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
