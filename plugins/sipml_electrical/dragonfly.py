"""Dragonfly: groups of routers, every two groups joined by links of their own (Kim and others, ISCA 2008)."""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError
from sipml_core.fields import at_least, between, one_of, option, parse_us, positive
from sipml_core.model import (
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

#: GPUs on one router, at most; balanced groups of so many routers join all GPUs that a cluster may have.
MAX_ROUTER_GPUS = 64


def _optional_count(doc: str) -> int | None:
    return option(  # type: ignore[no-any-return]
        None, doc=doc, validator=attrs.validators.optional(between(1, 4 * MAX_ROUTER_GPUS))
    )


@attrs.frozen(kw_only=True)
class DragonflyOptions:
    router_gpus: int | None = _optional_count("GPUs on one router, p; left out: as few as will do")
    group_routers: int | None = _optional_count("routers in one group, a; left out: 2 p")
    router_global_links: int | None = _optional_count("links of a router to other groups, h; left out: p")
    routing: str = option(
        "minimal",
        doc="minimal: over the link that joins both groups; valiant: through a third group, any one, which "
        "spreads what one group sends to one other",
        validator=one_of("minimal", "valiant"),
    )
    spread: str = option(
        "ecmp",
        doc="ecmp: a hash gives each pair one of the equal paths; spray: all, the same part on each",
        validator=one_of("ecmp", "spray"),
    )
    hash_seed: int = option(0, doc="with ecmp: another one, other choices", validator=between(0, 2**31 - 1))
    link_bandwidth: float = option(
        1.0, doc="a link between routers over the bandwidth of a GPU", validator=positive
    )
    hop_latency_us: float = option(
        0.0, doc="latency of each router", unit="us", converter=parse_us, validator=at_least(0)
    )
    global_latency_us: float = option(
        0.0, doc="latency of each link between groups", unit="us", converter=parse_us, validator=at_least(0)
    )

    def __attrs_post_init__(self) -> None:
        if self.spread == "spray" and self.hash_seed:
            raise ConfigError("hash_seed has no effect with spread = 'spray'; leave it out")


@attrs.frozen(kw_only=True)
class Groups:
    """What one group holds, and how many there are.

    Each two of g groups are joined by L links. Port m + c (g - 1) of group i leads to group i + 1 + m
    (mod g), for c from 0 to L - 1, and arrives there at port (g - 2 - m) + c (g - 1).
    """

    router_gpus: int
    routers: int
    router_links: int
    count: int

    @property
    def gpus(self) -> int:
        """Return the GPUs of one group."""
        return self.router_gpus * self.routers

    @property
    def most(self) -> int:
        """Return how many groups can be joined, each to each."""
        return self.routers * self.router_links + 1

    @property
    def parallel(self) -> int:
        """Return the links that join each two groups."""
        return self.routers * self.router_links // (self.count - 1) if self.count > 1 else 0

    def port(
        self, group: NDArray[np.int64], other: NDArray[np.int64], copy: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the port of a group that leads to another one, by the copy of the link.

        >>> groups = Groups(router_gpus=1, routers=2, router_links=1, count=3)
        >>> groups.port(np.array([0, 0, 1]), np.array([1, 2, 0]), np.array([0, 0, 0])).tolist()
        [0, 1, 1]
        """
        return (other - group - 1) % self.count + copy * (self.count - 1)

    @classmethod
    def of(cls, gpus: int, options: DragonflyOptions) -> Groups:
        """Return the smallest balanced network that joins all GPUs, as far as options leave it open.

        >>> found = Groups.of(24, DragonflyOptions())
        >>> found.router_gpus, found.routers, found.router_links, found.count
        (2, 4, 2, 3)
        """
        sizes = range(1, MAX_ROUTER_GPUS + 1) if options.router_gpus is None else (options.router_gpus,)
        for size in sizes:
            found = cls(
                router_gpus=size,
                routers=options.group_routers or 2 * size,
                router_links=options.router_global_links or size,
                count=1,
            )
            found = attrs.evolve(found, count=-(-gpus // found.gpus))
            if found.count <= found.most:
                return found
        raise ConfigError(
            f"{gpus} GPUs need {found.count} groups of {found.gpus}, but {found.routers} routers "
            f"(group_routers) with {found.router_links} links (router_global_links) join {found.most} "
            f"groups; at most {found.most * found.gpus} GPUs"
        )


class Dragonfly(Topology):
    """Ports of GPUs, links between the routers of a group, then links between groups."""

    name = "dragonfly"
    summary = "groups of routers, every two groups joined by a link; minimal or Valiant routes"
    Options = DragonflyOptions

    def build(self, cluster: Cluster) -> Fabric:
        groups = Groups.of(cluster.gpus, self.options)
        wires = _Wires(cluster, groups, self.options)

        def route(src: PairArray, dst: PairArray) -> Routes:
            return wires.route(np.asarray(src, np.int64), np.asarray(dst, np.int64))

        notes = [
            f"{groups.count} groups of {groups.routers} routers with {groups.router_gpus} GPUs each"
            + (f", {groups.parallel} links between each two groups" if groups.count > 1 else "")
        ]
        if cluster.gpus % groups.gpus and groups.count > 1:
            notes.append(f"the last group holds {cluster.gpus % groups.gpus} GPUs of {groups.gpus}")
        tiers = (("router", groups.router_gpus), ("group", groups.gpus))
        return Fabric(
            gpus=cluster.gpus,
            **wires.table.fields(),
            route=route,
            hints=FabricHints(tiers=tuple(tier for tier in tiers if 1 < tier[1] < cluster.gpus)),
            words=FabricWords(link_names=wires.table.name, notes=tuple(notes)),
        )


class _Wires:
    """Links and routes of a dragonfly."""

    def __init__(self, cluster: Cluster, groups: Groups, options: DragonflyOptions) -> None:
        self.groups, self.options, self.gpus = groups, options, cluster.gpus
        gpus, gpu = cluster.gpus, np.arange(cluster.gpus)
        gbps = cluster.bandwidth_gbps * options.link_bandwidth
        router = gpus + gpu // groups.router_gpus
        self.table = table = LinkTable()
        self.egress = table.add("egress {}", cluster.bandwidth_gbps, tail=gpu, head=router)
        self.ingress = table.add("ingress {}", cluster.bandwidth_gbps, tail=router, head=gpu)

        # From each router of a group to each other one. [groups, routers (routers - 1)]
        self.local = self.outward = 0
        shape = (groups.count, groups.routers, groups.routers)
        group, one, other = (found[:, ~np.eye(groups.routers, dtype=bool)] for found in np.indices(shape))
        if group.size:
            base = gpus + group * groups.routers
            numbers = list(
                zip(group.ravel().tolist(), one.ravel().tolist(), other.ravel().tolist(), strict=True)
            )
            self.local = table.add(
                "group {} {}->{}", gbps, tail=base + one, head=base + other, numbers=numbers
            )

        # From each port of a group that is used. [groups, ports]
        self.ports = (groups.count - 1) * groups.parallel
        if self.ports:
            group, port = np.indices((groups.count, self.ports))
            step, copy = port % (groups.count - 1), port // (groups.count - 1)
            peer = (group + 1 + step) % groups.count
            back = groups.port(peer, group, copy)
            tail = gpus + group * groups.routers + port // groups.router_links
            head = gpus + peer * groups.routers + back // groups.router_links
            numbers = list(
                zip(group.ravel().tolist(), peer.ravel().tolist(), copy.ravel().tolist(), strict=True)
            )
            self.outward = table.add("groups {}->{} link {}", gbps, tail=tail, head=head, numbers=numbers)

    def route(self, src: NDArray[np.int64], dst: NDArray[np.int64]) -> Routes:
        """Return the routes of pairs, over one path each or over all of them."""
        ways = [self._path(src, dst, *choice) for choice in self._choices(src, dst)]
        if len(ways) == 1:
            links, latency = ways[0]
            return Routes(links=links, latency_us=latency)
        links, latency = (np.stack(parts, axis=1) for parts in zip(*ways, strict=True))
        return Routes.of_paths(links, latency_us=latency)

    def _choices(
        self, src: NDArray[np.int64], dst: NDArray[np.int64]
    ) -> list[tuple[NDArray[np.int64] | None, NDArray[np.int64], NDArray[np.int64]]]:
        """Return (groups between, copies of the first link, of the second) of each path that is tried.

        [pairs] each; None: no group between.
        """
        groups, valiant = self.groups, self.options.routing == "valiant" and self.groups.count > 2
        one, other = src // groups.gpus, dst // groups.gpus
        if self.options.spread == "spray":
            copies = [np.full(len(src), copy) for copy in range(max(groups.parallel, 1))]
            if not valiant:
                return [(None, copy, copy) for copy in copies]
            steps = range(groups.count - 2)
            return [
                (self._between(one, other, np.full(len(src), step)), copy, copy)
                for step in steps
                for copy in copies
            ]
        key, salt = src * self.gpus + dst, 3 * self.options.hash_seed
        first, second = (hashed_choice(key, max(groups.parallel, 1), salt + k) for k in (0, 1))
        if not valiant:
            return [(None, first, first)]
        step = hashed_choice(key, groups.count - 2, salt + 2)
        return [(self._between(one, other, step), first, second)]

    def _between(
        self, one: NDArray[np.int64], other: NDArray[np.int64], step: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the step-th of the groups that are neither of two. [pairs]"""
        count = self.groups.count
        low, high = np.minimum(one, other), np.maximum(one, other)
        middle = step + (step >= low)
        middle = middle + (middle >= high)
        return np.where(one == other, one, np.minimum(middle, count - 1))

    def _path(
        self,
        src: NDArray[np.int64],
        dst: NDArray[np.int64],
        between: NDArray[np.int64] | None,
        first: NDArray[np.int64],
        second: NDArray[np.int64],
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the links of a path of each pair [pairs, width], and its latency [pairs]."""
        groups = self.groups
        at, end = src // groups.router_gpus, dst // groups.router_gpus
        columns, hops, globals_ = [self.egress + src], np.ones(len(src)), np.zeros(len(src))
        stops = (
            [(dst // groups.gpus, first)]
            if between is None
            else [(between, first), (dst // groups.gpus, second)]
        )
        for group, copy in stops:
            leaves = at // groups.routers != group
            links, at = self._to_group(at, group, copy, leaves)
            columns += links
            hops += (links[0] != NO_LINK) + leaves
            globals_ += leaves
        last = self._local(at, end)
        hops += last != NO_LINK
        columns += [last, self.ingress + dst]
        latency = hops * self.options.hop_latency_us + globals_ * self.options.global_latency_us
        return np.column_stack(columns), latency

    def _to_group(
        self,
        at: NDArray[np.int64],
        group: NDArray[np.int64],
        copy: NDArray[np.int64],
        leaves: NDArray[np.bool_],
    ) -> tuple[list[NDArray[np.int64]], NDArray[np.int64]]:
        """Return the links from routers to another group, and the routers where they arrive. [pairs]"""
        groups = self.groups
        if not self.ports:
            return [np.full(len(at), NO_LINK)], at
        own = at // groups.routers
        port, back = groups.port(own, group, copy), groups.port(group, own, copy)
        gate = own * groups.routers + port // groups.router_links
        near = np.where(leaves, self._local(at, gate), NO_LINK)
        over = np.where(leaves, self.outward + own * self.ports + port, NO_LINK)
        arrives = group * groups.routers + back // groups.router_links
        return [near, over], np.where(leaves, arrives, at)

    def _local(self, one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the link between routers of the same group; NO_LINK where they are the same. [pairs]"""
        routers = self.groups.routers
        group, a, b = one // routers, one % routers, other % routers
        number = (group * routers + a) * (routers - 1) + b - (b > a)
        return np.where(a == b, NO_LINK, self.local + number)
