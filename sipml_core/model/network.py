"""A fabric seen by one job: only the pairs that talk, only the links they cross, numbered densely."""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import InfeasibleError
from sipml_core.fields import float64_vector, int32_matrix, int32_vector, int64_vector
from sipml_core.model.fabric import Fabric
from sipml_core.model.routes import MAX_ROUTE_LINKS, NO_LINK, Routes
from sipml_core.model.taskgraph import TaskGraph


@attrs.frozen(kw_only=True, eq=False)
class Network:
    """The engine's view. Pairs are sorted by (src, dst); circuit links come after the fixed ones."""

    gpus: int
    pair_src: NDArray[np.int32] = attrs.field(converter=int32_vector)
    pair_dst: NDArray[np.int32] = attrs.field(converter=int32_vector)
    #: Dense link index, padded with NO_LINK. [pairs, width]
    pair_links: NDArray[np.int32] = attrs.field(converter=int32_matrix)
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
        key = tasks.src.astype(np.int64) * tasks.gpus + tasks.dst
        pairs, transfer_pair = np.unique(key, return_inverse=True)
        src = (pairs // tasks.gpus).astype(np.int32)
        dst = (pairs % tasks.gpus).astype(np.int32)
        routes = fabric.route(src, dst)
        check_routes(fabric, src, dst, routes)
        used = routes.links != NO_LINK
        link_id = np.unique(routes.links[used])
        dense = np.where(used, np.searchsorted(link_id, routes.links), NO_LINK)
        first_circuit = int(np.searchsorted(link_id, fabric.fixed_links))
        circuit_src, circuit_dst = fabric.circuit_pair(link_id[first_circuit:])
        return cls(
            gpus=tasks.gpus,
            pair_src=src,
            pair_dst=dst,
            pair_links=dense,
            pair_latency_us=routes.latency_us,
            transfer_pair=transfer_pair.reshape(-1),
            link_gbps=np.r_[fabric.link_gbps[link_id[:first_circuit]], np.zeros(len(circuit_src))],
            link_id=link_id,
            first_circuit=first_circuit,
            circuit_src=circuit_src,
            circuit_dst=circuit_dst,
        )

    def link_bytes(self, transfer_bytes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what transfers of these sizes send over each link. [transfers] -> [links] [bytes]"""
        pair_bytes = np.bincount(self.transfer_pair, weights=transfer_bytes, minlength=len(self.pair_src))
        total = np.zeros(len(self.link_gbps))
        for column in self.pair_links.T:
            used = column != NO_LINK
            np.add.at(total, column[used], pair_bytes[used])
        return total


def check_routes(fabric: Fabric, src: NDArray[np.int32], dst: NDArray[np.int32], routes: Routes) -> None:
    """Refuse routes that are missing, too long, or cross links the fabric does not have."""
    rows, width = routes.links.shape
    if rows != len(src) or len(routes.latency_us) != len(src) or width > MAX_ROUTE_LINKS:
        raise InfeasibleError(
            "the topology must return one route of at most "
            f"{MAX_ROUTE_LINKS} links for each of {len(src)} pairs, "
            f"got shape {routes.links.shape} and {len(routes.latency_us)} latencies"
        )
    missing = (routes.links == NO_LINK).all(axis=1)
    if missing.any():
        k = int(np.flatnonzero(missing)[0])
        raise InfeasibleError(
            f"no route from GPU {src[k]} to GPU {dst[k]}, and the job needs one "
            f"({int(missing.sum())} of {len(src)} pairs have none)"
        )
    last = fabric.fixed_links + (fabric.gpus**2 if fabric.circuits else 0)
    bad = (routes.links < NO_LINK) | (routes.links >= last)
    if bad.any():
        k = int(np.flatnonzero(bad.any(axis=1))[0])
        raise InfeasibleError(f"the route from GPU {src[k]} to GPU {dst[k]} crosses a link the fabric lacks")
    if len(src) and not (np.isfinite(routes.latency_us).all() and routes.latency_us.min() >= 0):
        raise InfeasibleError("route latencies must be finite and not negative")
