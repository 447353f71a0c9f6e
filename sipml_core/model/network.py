"""A fabric seen by one job: only the pairs that talk, only the links they cross, numbered densely."""

from __future__ import annotations

from functools import cached_property
from random import Random
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import InfeasibleError, PluginError
from sipml_core.fields import float64_vector, frozen, int32_matrix, int32_vector, int64_vector
from sipml_core.model.fabric import Fabric
from sipml_core.model.pairs import PairIndex, parts_of
from sipml_core.model.routes import NO_LINK, Routes, padded
from sipml_core.model.taskgraph import TaskGraph


@frozen(kw_only=True, eq=False)
class Network:
    """The engine's view. Pairs are sorted by (src, dst); circuit links come after the fixed ones.

    The entries ``pair_start[p]`` to ``pair_start[p + 1] - 1`` say what pair p crosses: a transfer of rate x
    takes ``pair_weight * x`` of the link ``pair_link``. A link that a pair has more than once counts with
    the sum of its weights.
    """

    gpus: int
    pair_src: NDArray[np.int32] = attrs.field(converter=int32_vector)
    pair_dst: NDArray[np.int32] = attrs.field(converter=int32_vector)
    #: First entry of each pair, and the number of entries. [pairs + 1]
    pair_start: NDArray[np.int64] = attrs.field(converter=int64_vector)
    #: Dense link index. [entries]
    pair_link: NDArray[np.int32] = attrs.field(converter=int32_vector)
    #: [entries]
    pair_weight: NDArray[np.float64] = attrs.field(converter=float64_vector)
    pair_latency_us: NDArray[np.float64] = attrs.field(converter=float64_vector)
    #: Pair of each transfer. [transfers]
    transfer_pair: NDArray[np.int32] = attrs.field(converter=int32_vector)
    #: Capacity at the start; circuit links start at 0. [links] [Gbps]
    link_gbps: NDArray[np.float64] = attrs.field(converter=float64_vector)
    #: Fabric ids, for names. [links]
    link_id: NDArray[np.int64] = attrs.field(converter=int64_vector)
    #: Links from this index on are circuits.
    first_circuit: int
    #: Ends of the circuits. [links - first_circuit]
    circuit_src: NDArray[np.int32] = attrs.field(converter=int32_vector)
    circuit_dst: NDArray[np.int32] = attrs.field(converter=int32_vector)

    @classmethod
    def of(cls, fabric: Fabric, tasks: TaskGraph) -> Network:
        """Restrict `fabric` to what `tasks` uses.

        Raises
        ------
        InfeasibleError
            A pair that must talk has no route; the pair is named.
        """
        index = PairIndex(tasks.gpus)
        pairs, transfer_pair = index.unique(tasks.src, tasks.dst)
        src, dst = index.ends(pairs)
        routes = fabric.route(src, dst)
        check_routes(fabric, src, dst, routes)
        routes = routes.flat()
        link_id = np.sort(routes.links)
        link_id = link_id[np.diff(link_id, prepend=-1) > 0]
        first_circuit = int(np.searchsorted(link_id, fabric.fixed_links))
        circuit_src, circuit_dst = fabric.circuit_pair(link_id[first_circuit:])
        return cls(
            gpus=tasks.gpus,
            pair_src=src,
            pair_dst=dst,
            pair_start=routes.start,
            pair_link=np.searchsorted(link_id, routes.links),
            pair_weight=routes.weight,
            pair_latency_us=routes.latency_us,
            transfer_pair=transfer_pair,
            link_gbps=np.r_[fabric.link_gbps[link_id[:first_circuit]], np.zeros(len(circuit_src))],
            link_id=link_id,
            first_circuit=first_circuit,
            circuit_src=circuit_src,
            circuit_dst=circuit_dst,
        )

    @classmethod
    def of_matrix(
        cls,
        *,
        pair_links: NDArray[np.int32],
        pair_weights: NDArray[np.float64] | None = None,
        **others: Any,
    ) -> Network:
        """A network from matrices [pairs, width]: links padded with NO_LINK, and their weights (None: 1)."""
        links = int32_matrix(pair_links)
        used = links != NO_LINK
        weights = np.ones(links.shape) if pair_weights is None else pair_weights
        return cls(
            pair_start=np.concatenate([[0], np.cumsum(used.sum(axis=1))]),
            pair_link=links[used],
            pair_weight=weights[used],
            **others,
        )

    @property
    def pair_links(self) -> NDArray[np.int32]:
        """The links of each pair, padded with NO_LINK. [pairs, width]"""
        return padded(self.pair_start, self.pair_link, NO_LINK)

    @property
    def pair_weights(self) -> NDArray[np.float64]:
        """Weights of `pair_links`, padded with 0. [pairs, width]"""
        return padded(self.pair_start, self.pair_weight, 0.0)

    def with_ports_only(self) -> Network:
        """Return the same network with circuits that are always there and as fast as the fastest port."""
        link_gbps = self.link_gbps.copy()
        link_gbps[self.first_circuit :] = link_gbps[: self.first_circuit].max(initial=1.0)
        none = np.zeros(0, dtype=np.int32)
        return attrs.evolve(
            self, link_gbps=link_gbps, first_circuit=len(link_gbps), circuit_src=none, circuit_dst=none
        )

    @cached_property
    def entry_pair(self) -> NDArray[np.int64]:
        """Pair of each entry. [entries]"""
        return np.repeat(np.arange(len(self.pair_src)), np.diff(self.pair_start))

    def link_sum(self, per_pair: NDArray[np.float64]) -> NDArray[np.float64]:
        """What the links carry where each pair sends this much: bytes, or a rate. [links]"""
        on_entry = per_pair[self.entry_pair] * self.pair_weight
        return np.asarray(
            np.bincount(self.pair_link, weights=on_entry, minlength=len(self.link_gbps)), np.float64
        )

    def link_bytes(self, transfer_bytes: NDArray[np.float64]) -> NDArray[np.float64]:
        """What the links carry where each transfer sends this much. [links]"""
        pair_bytes = np.zeros(len(self.pair_src))
        for part in parts_of(len(transfer_bytes)):
            np.add.at(pair_bytes, self.transfer_pair[part], transfer_bytes[part])
        return self.link_sum(pair_bytes)


def check_routes(fabric: Fabric, src: NDArray[np.int32], dst: NDArray[np.int32], routes: Routes) -> None:
    """Refuse routes that are missing, cross links the fabric does not have, or jump from link to link."""
    if routes.pairs != len(src) or len(routes.latency_us) != len(src):
        raise InfeasibleError(
            f"the topology must return one route for each of {len(src)} pairs, "
            f"got {routes.pairs} routes and {len(routes.latency_us)} latencies"
        )
    flat = routes.flat()
    assert flat.start is not None
    assert flat.weight is not None
    missing = np.diff(flat.start) == 0
    if missing.any():
        k = int(np.flatnonzero(missing)[0])
        raise InfeasibleError(
            f"no route from GPU {src[k]} to GPU {dst[k]}, and the job needs one "
            f"({int(missing.sum())} of {len(src)} pairs have none)"
        )
    last = fabric.fixed_links + (fabric.gpus**2 if fabric.circuits else 0)
    _refuse((flat.links < 0) | (flat.links >= last), flat.start, src, dst, "crosses a link the fabric lacks")
    _refuse(
        ~(np.isfinite(flat.weight) & (flat.weight > 0)),
        flat.start,
        src,
        dst,
        "has a link whose weight is not positive",
    )
    _refuse_jumps(fabric, src, dst, flat)
    if len(src) and not (np.isfinite(routes.latency_us).all() and routes.latency_us.min() >= 0):
        raise InfeasibleError("route latencies must be finite and not negative")


def _refuse(
    bad: NDArray[np.bool_],
    start: NDArray[np.int64],
    src: NDArray[np.int32],
    dst: NDArray[np.int32],
    what: str,
) -> None:
    """Name the first pair that has a bad entry, if there is one."""
    if bad.any():
        k = int(np.searchsorted(start, np.flatnonzero(bad)[0], side="right")) - 1
        raise InfeasibleError(f"the route from GPU {src[k]} to GPU {dst[k]} {what}")


def _refuse_jumps(fabric: Fabric, src: NDArray[np.int32], dst: NDArray[np.int32], flat: Routes) -> None:
    """Refuse routes whose links do not lead from the source to the destination, where ends are known.

    Every node has a height, drawn at random. Links that lead from src to dst, over one path or several,
    climb from the height of src to that of dst, whatever lies between; others do not, but by a chance of
    one in 2^30.
    """
    ends = fabric.link_ends(flat.links)
    if ends is None or not len(src):
        return
    assert flat.start is not None
    assert flat.weight is not None
    tail, head = ends
    nodes = 1 + max(int(tail.max()), int(head.max()), fabric.gpus - 1)
    draw = Random(0).random  # numpy.random takes longer to import than all this
    height = np.array([draw() for _ in range(nodes)])
    climbs = np.add.reduceat(flat.weight * (height[head] - height[tail]), flat.start[:-1])
    wrong = np.abs(climbs - (height[dst] - height[src])) > 1e-9
    if wrong.any():
        k = int(np.flatnonzero(wrong)[0])
        crossed = flat.links[flat.start[k] : flat.start[k + 1]]
        named = ", ".join(fabric.link_name(int(link)) for link in crossed[:6])
        raise InfeasibleError(
            f"the links of the route from GPU {src[k]} to GPU {dst[k]} do not lead there: {named}"
            f"{', ...' * (len(crossed) > 6)}"
        )


def refuse_excess(fabric: Fabric, network: Network, bandwidth_gbps: float) -> None:
    """Refuse a fabric in which a GPU can send or receive more than its bandwidth, unless hints say so.

    What a GPU can send at least: the same to each of its peers, as much as the links allow; or all to one.

    Raises
    ------
    PluginError
        Naming the GPU and what it can send, or receive.
    """
    if fabric.hints.above_bandwidth:
        return
    for verb, gpu in (("send", network.pair_src), ("receive", network.pair_dst)):
        total = _possible_gbps(network, gpu)
        if fabric.circuits is not None:
            total = np.minimum(total, fabric.circuits.circuits_per_gpu * fabric.circuits.circuit_gbps)
        if len(total) and total.max() > bandwidth_gbps * (1 + 1e-6):
            raise PluginError(
                f"in this network GPU {total.argmax()} can {verb} {total.max():g} Gbps, more than "
                f"cluster.bandwidth_gbps = {bandwidth_gbps:g}; give it a port of that bandwidth, or say "
                "FabricHints(above_bandwidth=True)"
            )


def _possible_gbps(network: Network, gpu: NDArray[np.int32]) -> NDArray[np.float64]:
    """What each GPU can surely send, or receive, if pairs belong to `gpu`; circuits do not limit. [gpus]"""
    # Entries of fixed links, and how often each GPU has each of them. [entries], [(gpu, link)]
    fixed = network.pair_link < network.first_circuit
    pair, link = network.entry_pair[fixed], network.pair_link[fixed]
    weight = network.pair_weight[fixed]
    key, where = np.unique(gpu[pair].astype(np.int64) * len(network.link_gbps) + link, return_inverse=True)
    used = np.bincount(where.reshape(-1), weights=weight, minlength=len(key))

    # The rate at which all its pairs can send at once, and each of them alone.
    owner, crossed = key // len(network.link_gbps), key % len(network.link_gbps)
    together, alone = np.full(network.gpus, np.inf), np.full(len(gpu), np.inf)
    np.minimum.at(together, owner, network.link_gbps[crossed] / used)
    np.minimum.at(alone, pair, network.link_gbps[link] / weight)
    total = np.zeros(network.gpus)
    np.maximum.at(total, gpu, alone)
    pairs = np.bincount(gpu, minlength=network.gpus)
    return np.where(pairs > 0, np.maximum(total, together * np.maximum(pairs, 1)), 0.0)
