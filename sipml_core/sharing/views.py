"""A network as the GPUs of one job see it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import InfeasibleError
from sipml_core.fields import frozen
from sipml_core.model import (
    CircuitControl,
    CircuitPart,
    Cluster,
    Fabric,
    FabricWords,
    PairArray,
    Routes,
    job_circuits,
    torus_filled,
)
from sipml_core.plugin import Topology


@frozen(kw_only=True, eq=False)
class _Table:
    """The routes of all pairs of some GPUs: pair (a, b) has the entries from ``start[a * ranks + b]`` on."""

    ranks: int
    #: [ranks ** 2 + 1]
    start: NDArray[np.int64]
    #: [entries]
    links: NDArray[np.int64]
    weight: NDArray[np.float64]
    #: [ranks ** 2] [us]
    latency_us: NDArray[np.float64]

    @classmethod
    def of(cls, route: Callable[[PairArray, PairArray], Routes], gpus: NDArray[np.int32]) -> _Table:
        """Return what pairs of GPUs cross; nothing leads from a GPU to itself."""
        ranks = len(gpus)
        src, dst = np.divmod(np.arange(ranks**2, dtype=np.int32), np.int32(ranks))
        other = src != dst
        routes = route(gpus[src[other]], gpus[dst[other]]).flat()
        assert routes.start is not None
        assert routes.weight is not None
        count, latency_us = np.zeros(ranks**2, np.int64), np.zeros(ranks**2)
        count[other], latency_us[other] = np.diff(routes.start), routes.latency_us
        start = np.concatenate([[0], np.cumsum(count)])
        links = np.asarray(routes.links, np.int64)
        return cls(ranks=ranks, start=start, links=links, weight=routes.weight, latency_us=latency_us)

    @property
    def pair(self) -> NDArray[np.int64]:
        """Return the pair of each entry. [entries]"""
        return np.repeat(np.arange(self.ranks**2), np.diff(self.start))

    def without(self, missing: NDArray[np.bool_]) -> _Table:
        """Return the same where some pairs have no route. [ranks ** 2]"""
        if not missing.any():
            return self
        kept = ~missing[self.pair]
        count = np.where(missing, 0, np.diff(self.start))
        start = np.concatenate([[0], np.cumsum(count)])
        return attrs.evolve(self, start=start, links=self.links[kept], weight=self.weight[kept])

    def route(self, a: PairArray, b: PairArray) -> Routes:
        """Return the routes of pairs of ranks."""
        pair = np.asarray(a, np.int64) * self.ranks + b
        length = np.diff(self.start)[pair]
        begin = np.concatenate([[0], np.cumsum(length)])
        entry = np.arange(begin[-1]) + np.repeat(self.start[pair] - begin[:-1], length)
        return Routes(
            start=begin, links=self.links[entry], weight=self.weight[entry], latency_us=self.latency_us[pair]
        )

    @property
    def joined(self) -> bool:
        """Return whether pairs with a route lead from the first GPU to all others."""
        leads = (np.diff(self.start) > 0).reshape(self.ranks, self.ranks)
        reached = np.arange(self.ranks) == 0
        while True:
            more = reached | leads[reached].any(axis=0)
            if (more == reached).all():
                return bool(reached.all())
            reached = more

    @property
    def said(self) -> tuple[NDArray[Any], ...]:
        """Return what tells it from others."""
        return self.start, self.links, self.weight, self.latency_us


@frozen(kw_only=True, eq=False)
class View:
    """The links that the pairs of a job cross, numbered in the order in which pairs cross them.

    So two jobs whose GPUs are to each other as those of the other are see the same network. Pairs whose
    routes use circuits of GPUs that the job does not have, have none.
    """

    #: GPU of the cluster at each rank. [ranks]
    gpus: NDArray[np.int32]
    #: Link of the cluster's network that each link is, circuits left out. [links]
    links: NDArray[np.int64]
    fabric: Fabric
    #: The same for views that are alike.
    key: str
    #: Whether routes lead from any GPU to any other, over others of the job where they have to.
    joined: bool

    @classmethod
    def of(cls, fabric: Fabric, gpus: NDArray[np.int32], parts: int = 1) -> View:
        """Return what the GPUs see of a network, with one of so many equal parts of circuits that jobs share.

        Raises
        ------
        InfeasibleError
            There are not enough circuits to divide them so often.
        """
        control = None if fabric.circuits is None else fabric.circuits.divided(parts)
        if control is None and fabric.circuits is not None:
            raise InfeasibleError(f"circuits that jobs share cannot be divided among {parts} of them")
        ways = (
            [fabric.route] if control is None or control.packets is None else [fabric.route, control.packets]
        )
        circuits = None if control is None else job_circuits(control, gpus)
        tables = [_Table.of(way, gpus) for way in ways]
        if circuits is not None:
            tables = [_on_circuits(table, circuits, fabric, gpus) for table in tables]

        # Number fixed links by their first appearance. [entries]
        crossed = np.concatenate([table.links for table in tables])
        found, first = np.unique(crossed[crossed < fabric.fixed_links], return_index=True)
        order = np.argsort(first, kind="stable")
        links = found[order]
        local = np.empty(len(links), np.int64)
        local[order] = np.arange(len(links))
        tables = [_renumbered(table, fabric, gpus, found, local) for table in tables]

        gbps = fabric.link_gbps[links]
        tiers = job_tiers(gpus, fabric.hints.tiers)
        torus = torus_filled(gpus[:, None], fabric.hints.torus)
        said = [each for table in tables for each in table.said]
        said += [gbps, np.array([size for _, size in tiers], np.int64)]
        said.append(np.array([len(torus), *torus], np.int64))
        if circuits is not None and control is not None and control.packets is not None:
            below = control.packets_below_bytes
            circuits = attrs.evolve(circuits, packets=tables[1].route, packets_below_bytes=below)
        digest = hashlib.sha256(b"".join(np.ascontiguousarray(each).tobytes() for each in said))
        digest.update(_told(circuits))
        return cls(
            gpus=gpus,
            links=links,
            fabric=Fabric(
                gpus=len(gpus),
                link_gbps=gbps,
                route=tables[0].route,
                circuits=circuits,
                hints=attrs.evolve(fabric.hints, tiers=tiers, order=None, torus=torus),
                words=FabricWords(link_names=lambda k: fabric.link_name(int(links[k]))),
                **_ends(fabric, gpus, links),
            ),
            key=digest.hexdigest(),
            joined=any(table.joined for table in tables),
        )


def _told(value: Any) -> bytes:
    """Return what tells circuits from others, but for routes of packets."""
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, tuple):
        return b"".join(map(_told, value))
    if isinstance(value, (CircuitControl, CircuitPart)):
        fields = [getattr(value, field.name) for field in attrs.fields(type(value))]
        return type(value).__name__.encode() + b"".join(_told(each) for each in fields)
    return b"" if value is None or callable(value) else repr(value).encode() + b";"


def _on_circuits(table: _Table, circuits: CircuitControl, fabric: Fabric, gpus: NDArray[np.int32]) -> _Table:
    """Return the routes of a job without those that use circuits which it cannot have."""
    circuit = table.links >= fabric.fixed_links
    rank = np.full(fabric.gpus, -1, np.int32)
    rank[gpus] = np.arange(len(gpus))
    src, dst = (rank[ends] for ends in fabric.circuit_pair(table.links[circuit]))
    lacks = (src < 0) | (dst < 0)
    lacks[~lacks] = ~circuits.may_connect(src[~lacks], dst[~lacks])
    return table.without(np.bincount(table.pair[circuit][lacks], minlength=table.ranks**2) > 0)


def _renumbered(
    table: _Table,
    fabric: Fabric,
    gpus: NDArray[np.int32],
    found: NDArray[np.int64],
    local: NDArray[np.int64],
) -> _Table:
    """Return routes over the links of the view: `local` numbers of the fixed links `found`, then circuits."""
    links = np.empty(len(table.links), np.int64)
    circuit = table.links >= fabric.fixed_links
    links[~circuit] = local[np.searchsorted(found, table.links[~circuit])]
    if circuit.any():
        rank = np.full(fabric.gpus, -1, np.int64)
        rank[gpus] = np.arange(len(gpus))
        src, dst = fabric.circuit_pair(table.links[circuit])
        links[circuit] = len(found) + rank[src] * table.ranks + rank[dst]
    return attrs.evolve(table, links=links)


def _ends(fabric: Fabric, gpus: NDArray[np.int32], links: NDArray[np.int64]) -> dict[str, Any]:
    """Return the ends of the links as the job numbers nodes: its GPUs by rank, all others behind."""
    if fabric.link_tail is None or fabric.link_head is None:
        return {}
    ends = np.concatenate([fabric.link_tail[links], fabric.link_head[links]])
    others = np.setdiff1d(ends, gpus)
    nodes = np.concatenate([gpus, others]).astype(np.int64)
    order = np.argsort(nodes, kind="stable")
    number = order[np.searchsorted(nodes[order], ends)]
    return {"link_tail": number[: len(links)], "link_head": number[len(links) :]}


def job_tiers(gpus: NDArray[np.int32], tiers: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """Return the units that ranks fill equally, one after the other, by how many ranks lie in each.

    GPUs 0, 1 of one server of 4, and 4, 5 of the next:

    >>> job_tiers(np.array([0, 1, 4, 5]), (("server", 4),))
    (('server', 2),)
    >>> job_tiers(np.array([0, 4, 5, 6]), (("server", 4),))
    ()
    """
    found: list[tuple[str, int]] = []
    inner = 1
    for name, size in tiers:
        unit = gpus // size
        changes = np.flatnonzero(np.diff(unit)) + 1
        length = int(changes[0]) if len(changes) else len(gpus)
        if length == 1 or len(gpus) % length or length % inner:
            continue
        rows = unit.reshape(-1, length)
        if (rows == rows[:, :1]).all() and len(np.unique(rows[:, 0])) == len(rows):
            found.append((name, length))
            inner = length
    return tuple(found)


@frozen(kw_only=True)
class _ViewOptions:
    """Equal where views are alike."""

    key: str
    fabric: Fabric = attrs.field(eq=False)


class Viewed(Topology):
    """The network that a view is of, as a topology."""

    name = "viewed"
    summary = "a network as one job sees it"
    Options = _ViewOptions

    @classmethod
    def of(cls, view: View) -> Viewed:
        """Return the topology of a view."""
        return cls(_ViewOptions(key=view.key, fabric=view.fabric))

    def build(self, cluster: Cluster) -> Fabric:
        fabric: Fabric = self.options.fabric
        return fabric
