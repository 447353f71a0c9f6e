"""Fat tree: servers or single GPUs on layers of equal switches, routed by hashing or by spraying."""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError
from sipml_core.fields import at_least, between, one_of, option, parse_gbps, parse_us, positive
from sipml_core.model import (
    MAX_GPUS,
    NO_LINK,
    Cluster,
    Fabric,
    FabricHints,
    FabricWords,
    PairArray,
    Routes,
    hashed_choice,
)
from sipml_core.plugin import Topology
from sipml_electrical.linktable import LinkTable

#: Ports of the largest switch that is looked for. With fewer, 3 layers join all GPUs a cluster may have.
MAX_PORTS = 1024
#: Hashed flows of one pair, at most.
MAX_FLOWS = 64


def _layers(_: object, attribute: attrs.Attribute[int], value: object) -> None:
    if value not in (2, 3) or isinstance(value, (bool, float)):
        raise ConfigError(
            f"{attribute.name} must be 2 (leaf, spine) or 3 (leaf, aggregation, core), got {value!r}"
        )


@attrs.frozen(kw_only=True)
class FatTreeOptions:
    layers: int = option(3, doc="2: leaves and spines; 3: leaves, aggregation and cores", validator=_layers)
    ports: int | None = option(
        None,
        doc="ports of each switch, an even number; left out: as few as will do with the oversubscription "
        "that is asked for, and with whole servers on each leaf where that can be",
        validator=attrs.validators.optional(between(2, MAX_PORTS)),
    )
    oversubscription: float = option(
        1.0, doc="ports of a leaf towards GPUs over those upwards; 1: none", validator=between(1, MAX_PORTS)
    )
    routing: str = option(
        "ecmp",
        doc="ecmp: a hash gives each flow one of the equal paths, and flows that meet share it; spray: a "
        "pair's bytes go over all of them, the same part over each",
        validator=one_of("ecmp", "spray"),
    )
    flows: int = option(
        1, doc="with ecmp: flows into which a pair's bytes are split, each hashed for itself",
        validator=between(1, MAX_FLOWS),
    )  # fmt: skip
    hash_seed: int = option(
        0, doc="with ecmp: another one, other collisions", validator=between(0, 2**31 - 1)
    )
    server_gpus: int = option(
        1, doc="GPUs in one server, joined by an ideal switch at the bandwidth of a GPU; 1: no servers",
        validator=between(1, MAX_GPUS),
    )  # fmt: skip
    card_gbps: float | None = option(
        None, unit="Gbps", doc="network card of each GPU, and every link of the tree; left out: as a GPU",
        converter=attrs.converters.optional(parse_gbps), validator=attrs.validators.optional(positive),
    )  # fmt: skip
    wiring: str = option(
        "servers",
        doc="servers: leaves are filled with one server after the other; rails: GPU i of every server is "
        "on a leaf of rail i",
        validator=one_of("servers", "rails"),
    )
    through_server: bool = option(
        False,
        doc="with rails: what is for another rail goes inside the server to the GPU of that rail first, and "
        "never up the tree to change rails",
        validator=attrs.validators.instance_of(bool),
    )
    latency_us: float = option(
        0.0, doc="latency inside a server", unit="us", converter=parse_us, validator=at_least(0)
    )
    hop_latency_us: float = option(
        0.0, doc="latency of each switch of the tree", unit="us", converter=parse_us, validator=at_least(0)
    )

    def __attrs_post_init__(self) -> None:
        if self.ports is not None and self.ports % 2:
            raise ConfigError(
                f"ports must be even, got {self.ports}; nearest: {self.ports - 1 or 2} or {self.ports + 1}"
            )
        if self.wiring == "rails" and self.server_gpus == 1:
            raise ConfigError("wiring = 'rails' needs servers: set server_gpus, such as 8")
        if self.through_server and self.wiring != "rails":
            raise ConfigError("through_server has no effect without wiring = 'rails'; leave it out")
        if self.routing == "spray" and (self.flows > 1 or self.hash_seed):
            raise ConfigError("flows and hash_seed have no effect with routing = 'spray'; leave them out")


@attrs.frozen(kw_only=True)
class Tree:
    """How many switches of which ports stand where."""

    ports: int
    layers: int
    #: Ports of a leaf towards GPUs, and upwards.
    down: int
    up: int
    leaves: int
    #: Oversubscription that was asked for.
    asked: float = 1.0

    @classmethod
    def of(cls, gpus: int, ports: int, options: FatTreeOptions) -> Tree:
        """Return the tree of switches of so many ports that joins all GPUs, large enough or not.

        >>> Tree.of(16, 4, FatTreeOptions()).leaves
        8
        """
        up = max(1, int(ports / (1 + options.oversubscription)))
        down, size = ports - up, options.server_gpus
        #: Leaves that are filled together: one of each rail.
        rails = size if options.wiring == "rails" else 1
        leaves = -(-gpus // (down * rails)) * rails
        asked = options.oversubscription
        return cls(ports=ports, layers=options.layers, down=down, up=up, leaves=leaves, asked=asked)

    @property
    def most_leaves(self) -> int:
        """Return how many leaves the layers above can join."""
        return self.ports if self.layers == 2 else self.ports * self.pod_leaves

    @property
    def fits(self) -> bool:
        """Return whether all leaves can be joined."""
        return self.leaves <= self.most_leaves

    @property
    def pod_leaves(self) -> int:
        """Return the leaves of one pod: half of an aggregation switch's ports lead to them."""
        return self.ports // 2

    @property
    def pods(self) -> int:
        return -(-self.leaves // self.pod_leaves)

    @property
    def told(self) -> str:
        """Return in words what stands where."""
        if self.layers == 2:
            above = "1 spine" if self.up == 1 else f"{self.up} spines"
        else:
            above = f"{self.pods * self.up} aggregation switches, {self.up * self.pod_leaves} cores"
        ratio = "" if self.down == self.up else f", {self.down / self.up:.4g}:1 oversubscribed"
        asked = "" if self.amiss < 1e-9 else f" ({self.asked:g}:1 asked)"
        return f"switches of {self.ports} ports: {self.leaves} leaves, {above}{ratio}{asked}"

    @property
    def amiss(self) -> float:
        """Return by how much the oversubscription is another one than was asked for, relative."""
        return abs(self.down / self.up / self.asked - 1)


class FatTree(Topology):
    """Ports of GPUs, cards of servers, then the links up and down of leaves and of aggregation switches.

    Sprayed evenly, equal links in parallel carry the same always, so they are one link of their capacities
    together. With hashing each is a link of its own.
    """

    name = "fat-tree"
    summary = "leaf-spine or k-ary fat tree, oversubscribed or not, by rails or not, hashed or sprayed"
    Options = FatTreeOptions

    def build(self, cluster: Cluster) -> Fabric:
        options = self.options
        tree = self._tree(cluster.gpus)
        wires = _Wires(cluster, tree, options)

        def route(src: PairArray, dst: PairArray) -> Routes:
            return wires.route(np.asarray(src, np.int64), np.asarray(dst, np.int64))

        return Fabric(
            gpus=cluster.gpus,
            **wires.table.fields(),
            route=route,
            hints=FabricHints(tiers=_tiers(cluster.gpus, tree, options)),
            words=FabricWords(link_names=wires.table.name, notes=(tree.told,)),
        )

    def _tree(self, gpus: int) -> Tree:
        options, given = self.options, self.options.ports
        trees = (Tree.of(gpus, ports, options) for ports in range(2, MAX_PORTS + 1, 2))
        least = min((tree for tree in trees if tree.fits), key=self._preference, default=None)
        if given is None:
            if least is None:
                raise ConfigError(
                    f"no switch of up to {MAX_PORTS} ports joins {gpus} GPUs in {options.layers} layers"
                )
            return least
        tree = Tree.of(gpus, given, options)
        if not tree.fits:
            enough = f"; ports = {least.ports} would do" if least else ""
            raise ConfigError(
                f"{gpus} GPUs need {tree.leaves} leaves, but switches of {given} ports (ports) in "
                f"{options.layers} layers join {tree.most_leaves}{enough}"
            )
        return tree

    def _preference(self, tree: Tree) -> tuple[float, bool, int]:
        """Return what makes a tree the better choice, less first: its ratio, whole servers, few ports."""
        whole = self.options.wiring == "rails" or tree.down % self.options.server_gpus == 0
        return round(tree.amiss, 9), not whole, tree.ports


def _tiers(gpus: int, tree: Tree, options: FatTreeOptions) -> tuple[tuple[str, int], ...]:
    """Return servers, and the GPUs of a leaf (of one of each rail), where one lies whole in the other."""
    size = options.server_gpus
    leaf = tree.down * (size if options.wiring == "rails" else 1)
    tiers = [("server", size)] if size > 1 else []
    if tree.leaves > 1 and leaf % size == 0 and size < leaf < gpus:
        tiers.append(("leaf", leaf))
    return tuple(tiers)


class _Wires:
    """Links and routes of a fat tree."""

    def __init__(self, cluster: Cluster, tree: Tree, options: FatTreeOptions) -> None:
        self.tree, self.options, self.gpus = tree, options, cluster.gpus
        gpus, size = cluster.gpus, options.server_gpus
        card_gbps = options.card_gbps or cluster.bandwidth_gbps
        gpu, leaf = np.arange(gpus), self.leaf_of(np.arange(gpus))

        # Nodes: GPUs, servers (with size > 1), leaves, then the switches above.
        servers = -(-gpus // size) if size > 1 else 0
        leaf_node = gpus + servers
        above = leaf_node + tree.leaves
        self.table = table = LinkTable()
        if size == 1:
            port_gbps = min(cluster.bandwidth_gbps, card_gbps)
            self.egress = table.add("egress {}", port_gbps, tail=gpu, head=leaf_node + leaf)
            self.ingress = table.add("ingress {}", port_gbps, tail=leaf_node + leaf, head=gpu)
        else:
            server = gpus + gpu // size
            self.egress = table.add("egress {}", cluster.bandwidth_gbps, tail=gpu, head=server)
            self.ingress = table.add("ingress {}", cluster.bandwidth_gbps, tail=server, head=gpu)
            self.card_out = table.add("card of {} out", card_gbps, tail=server, head=leaf_node + leaf)
            self.card_in = table.add("card of {} in", card_gbps, tail=leaf_node + leaf, head=server)
        if options.routing == "spray":
            self._bundles(leaf_node, above, card_gbps)
        else:
            self._single_links(leaf_node, above, card_gbps)

    def leaf_of(self, gpu: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the leaf of each GPU; the leaves of all rails of the same servers are neighbours."""
        size = self.options.server_gpus
        if self.options.wiring == "rails":
            return gpu // size // self.tree.down * size + gpu % size
        return gpu // self.tree.down

    def _bundles(self, leaf_node: int, above: int, gbps: float) -> None:
        """Add one link for all that lead from a leaf upwards, and for all from a pod to the cores."""
        tree = self.tree
        leaf = np.arange(tree.leaves)
        pod = leaf // tree.pod_leaves if tree.layers == 3 else np.zeros_like(leaf)
        low, high = leaf_node + leaf, above + pod
        self.up = self.table.add("leaf {} up", gbps * tree.up, tail=low, head=high)
        self.down = self.table.add("leaf {} down", gbps * tree.up, tail=high, head=low)
        if tree.layers == 3:
            pods, core = above + np.arange(tree.pods), np.full(tree.pods, above + tree.pods)
            pod_gbps = gbps * tree.up * tree.pod_leaves
            self.pod_up = self.table.add("pod {} up", pod_gbps, tail=pods, head=core)
            self.pod_down = self.table.add("pod {} down", pod_gbps, tail=core, head=pods)

    def _single_links(self, leaf_node: int, above: int, gbps: float) -> None:
        """Add a link from each leaf to each switch above it, and from each of these to each of its cores."""
        tree, add = self.tree, self.table.add
        shape: tuple[int, ...] = (tree.leaves, tree.up)
        leaf, port = np.indices(shape)
        pod = leaf // tree.pod_leaves if tree.layers == 3 else np.zeros_like(leaf)
        low, high = leaf_node + leaf, above + pod * tree.up + port
        self.up = add("leaf {} up {}", gbps, shape=shape, tail=low, head=high)
        self.down = add("leaf {} down {}", gbps, shape=shape, tail=high, head=low)
        if tree.layers == 3:
            shape = (tree.pods, tree.up, tree.pod_leaves)
            pod, middle, port = np.indices(shape)
            low = above + pod * tree.up + middle
            high = above + tree.pods * tree.up + middle * tree.pod_leaves + port
            name = "pod {} aggregation {} "
            self.pod_up = add(name + "up {}", gbps, shape=shape, tail=low, head=high)
            self.pod_down = add(name + "down {}", gbps, shape=shape, tail=high, head=low)

    def route(self, src: NDArray[np.int64], dst: NDArray[np.int64]) -> Routes:
        """Return the routes of pairs of GPUs, over each of their flows."""
        options, size = self.options, self.options.server_gpus
        inside = (src // size == dst // size) if size > 1 else np.zeros(len(src), bool)
        # GPU whose card sends: another one where the server changes the rail.
        sender = src // size * size + dst % size if options.through_server else src
        sender = np.where(sender < self.gpus, sender, src)  # the last server may lack that GPU
        from_leaf, to_leaf = self.leaf_of(sender), self.leaf_of(dst)
        climbs = ~inside & (from_leaf != to_leaf)
        across = climbs & (self._pod(from_leaf) != self._pod(to_leaf))

        start, end = self.egress + src[:, None], self.ingress + dst[:, None]
        if size > 1:
            relays = (sender != src) & ~inside
            handed_over = _where(relays, self.ingress + sender, self.egress + sender)
            card = _where(~inside, self.card_out + sender)
            start = np.hstack([start, handed_over, card])
            end = np.hstack([_where(~inside, self.card_in + dst), end])
        paths = [
            np.hstack([start, self._climb(flow, src, dst, from_leaf, to_leaf, climbs, across), end])
            for flow in range(options.flows)
        ]
        switches = np.where(inside, 0, 1 + 2 * climbs + 2 * across)
        latency = np.where(inside, options.latency_us, switches * options.hop_latency_us)
        if len(paths) == 1:
            return Routes(links=paths[0], latency_us=latency)
        return Routes.of_paths(
            np.stack(paths, axis=1), latency_us=np.repeat(latency[:, None], len(paths), axis=1)
        )

    def _pod(self, leaf: NDArray[np.int64]) -> NDArray[np.int64]:
        return leaf // self.tree.pod_leaves if self.tree.layers == 3 else np.zeros_like(leaf)

    def _climb(
        self,
        flow: int,
        src: NDArray[np.int64],
        dst: NDArray[np.int64],
        from_leaf: NDArray[np.int64],
        to_leaf: NDArray[np.int64],
        climbs: NDArray[np.bool_],
        across: NDArray[np.bool_],
    ) -> NDArray[np.int64]:
        """Return the links up from one leaf and down to the other. [pairs, 2 or 4]"""
        tree, key = self.tree, src * self.gpus + dst
        up, down, pod_up, pod_down = from_leaf, to_leaf, self._pod(from_leaf), self._pod(to_leaf)
        if self.options.routing == "ecmp":
            salt = 2 * (self.options.hash_seed * MAX_FLOWS + flow)
            port = hashed_choice(key, tree.up, salt)
            up, down = up * tree.up + port, down * tree.up + port
            core = port * tree.pod_leaves + hashed_choice(key, tree.pod_leaves, salt + 1)
            cores = tree.up * tree.pod_leaves
            pod_up, pod_down = pod_up * cores + core, pod_down * cores + core
        if tree.layers == 2:
            return _where(climbs, self.up + up, self.down + down)
        over = _where(across, self.pod_up + pod_up, self.pod_down + pod_down)
        return np.hstack([_where(climbs, self.up + up), over, _where(climbs, self.down + down)])


def _where(used: NDArray[np.bool_], *links: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return columns of links, NO_LINK for the pairs that do not use them. [pairs, links]

    >>> _where(np.array([True, False]), np.array([4, 5]), np.array([6, 7])).tolist()
    [[4, 6], [-1, -1]]
    """
    return np.where(used[:, None], np.column_stack(links), NO_LINK)
