"""A network as the GPUs of one job see it."""

from __future__ import annotations

import hashlib
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.model import Cluster, Fabric, FabricWords, PairArray, Routes, torus_filled
from sipml_core.plugin import Topology


@attrs.frozen(kw_only=True, eq=False)
class View:
    """The links that the pairs of a job cross, numbered in the order in which pairs cross them.

    So two jobs whose GPUs are to each other as those of the other are see the same network.
    """

    #: GPU of the cluster at each rank. [ranks]
    gpus: NDArray[np.int32]
    #: Link of the cluster's network that each link is. [links]
    links: NDArray[np.int64]
    fabric: Fabric
    #: The same for views that are alike.
    key: str

    @classmethod
    def of(cls, fabric: Fabric, gpus: NDArray[np.int32]) -> View:
        """Return what the GPUs see of a packet network."""
        ranks = len(gpus)
        src, dst = np.divmod(np.arange(ranks**2, dtype=np.int32), np.int32(ranks))
        other = src != dst
        routes = fabric.route(gpus[src[other]], gpus[dst[other]]).flat()
        assert routes.start is not None
        assert routes.weight is not None

        # Number links by their first appearance. [entries]
        links, first, inverse = np.unique(routes.links, return_index=True, return_inverse=True)
        rank = np.empty(len(links), np.int64)
        rank[np.argsort(first, kind="stable")] = np.arange(len(links))
        local = rank[inverse.reshape(-1)]
        links = links[np.argsort(first, kind="stable")]

        # Entries of pair (a, b) from start[a * ranks + b] on; none from a GPU to itself.
        count = np.zeros(ranks**2, np.int64)
        count[other] = np.diff(routes.start)
        start = np.concatenate([[0], np.cumsum(count)])
        latency = np.zeros(ranks**2)
        latency[other] = routes.latency_us
        weight, gbps = routes.weight, fabric.link_gbps[links]
        tiers = job_tiers(gpus, fabric.hints.tiers)
        torus = torus_filled(gpus[:, None], fabric.hints.torus)

        def route(a: PairArray, b: PairArray) -> Routes:
            pair = np.asarray(a, np.int64) * ranks + b
            length = count[pair]
            begin = np.concatenate([[0], np.cumsum(length)])
            entry = np.arange(begin[-1]) + np.repeat(start[pair] - begin[:-1], length)
            return Routes(start=begin, links=local[entry], weight=weight[entry], latency_us=latency[pair])

        units = np.array([size for _, size in tiers], np.int64)
        said = (start, local, weight, latency, gbps, units, np.array([len(torus), *torus], np.int64))
        digest = hashlib.sha256(b"".join(np.ascontiguousarray(each).tobytes() for each in said))
        return cls(
            gpus=gpus,
            links=links,
            fabric=Fabric(
                gpus=ranks,
                link_gbps=gbps,
                route=route,
                hints=attrs.evolve(fabric.hints, tiers=tiers, order=None, torus=torus),
                words=FabricWords(link_names=lambda k: fabric.link_name(int(links[k]))),
                **_ends(fabric, gpus, links),
            ),
            key=digest.hexdigest(),
        )


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


@attrs.frozen(kw_only=True)
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
