"""Links from a NetworkX graph: edges become links, each one way; `graphroutes` finds routes over them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any

import attrs
import networkx as nx
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError, brief, shown
from sipml_core.fields import at_least, frozen, parse_gbps, parse_us, positive
from sipml_core.model.graphroutes import GraphRouter
from sipml_core.model.routes import NO_LINK, PairArray, Routes


@frozen(kw_only=True)
class _Link:
    """One direction of one edge."""

    name: str
    tail: int
    head: int
    gbps: float = attrs.field(validator=positive)
    latency_us: float = attrs.field(validator=at_least(0))


@frozen(kw_only=True, eq=False)
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
    router = GraphRouter(
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
