"""Pairs without a circuit of their own go through one GPU in between, which forwards."""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import InfeasibleError
from sipml_core.fields import frozen
from sipml_core.model import CircuitPlan, Fabric, PairArray, PairIndex, Routes, TrafficMatrix


def with_relays(fabric: Fabric, plan: CircuitPlan, traffic: TrafficMatrix | None = None) -> Fabric:
    """`fabric` with routes that use only circuits of `plan`: its own where the pair has a circuit, two
    hops where it has none.

    Which GPU relays is decided for all pairs that one call of `route` asks for, so that relays spread:
    ask for all pairs of a job at once.

    Parameters
    ----------
    traffic
        What pairs send, to weigh them by; None: all the same.
    """
    return attrs.evolve(fabric, route=lambda src, dst: relayed_routes(fabric, plan, src, dst, traffic))


def relayed_routes(
    fabric: Fabric,
    plan: CircuitPlan,
    src: PairArray,
    dst: PairArray,
    traffic: TrafficMatrix | None = None,
) -> Routes:
    """Direct routes for pairs with a circuit; for others the links of src -> mid, then of mid -> dst.

    Raises
    ------
    InfeasibleError
        No GPU can relay some pair; the pair is named.
    """
    src, dst = np.asarray(src, np.int32), np.asarray(dst, np.int32)
    direct = plan.capacity_gbps(src, dst) > 0
    mid = relays(plan, src, dst, traffic)[~direct]
    rows = np.flatnonzero(~direct)
    parts = [
        (np.flatnonzero(direct), fabric.route(src[direct], dst[direct])),
        (rows, fabric.route(src[~direct], mid)),
        (rows, fabric.route(mid, dst[~direct])),
    ]
    return _together(len(src), parts)


def _together(pairs: int, parts: list[tuple[NDArray[np.intp], Routes]]) -> Routes:
    """Routes of all pairs from those of some, by their rows; a pair in several parts crosses them in order.

    >>> one = Routes(links=[[0, 3]], latency_us=[1.0])
    >>> two = Routes(start=[0, 2], links=[5, 6], weight=[0.5, 0.5], latency_us=[2.0])
    >>> found = _together(2, [(np.array([1]), one), (np.array([0]), two), (np.array([1]), two)])
    >>> found.matrix.tolist(), found.weight.tolist(), found.latency_us.tolist()
    ([[5, 6, -1, -1], [0, 3, 5, 6]], [0.5, 0.5, 1.0, 1.0, 0.5, 0.5], [2.0, 3.0])
    """
    latency_us = np.zeros(pairs)
    pair, links, weight = [], [], []
    for rows, routes in parts:
        flat = routes.flat()
        assert flat.start is not None
        assert flat.weight is not None
        pair.append(np.repeat(rows, np.diff(flat.start)))
        links.append(flat.links)
        weight.append(flat.weight)
        latency_us[rows] += flat.latency_us

    order = np.argsort(np.concatenate(pair), kind="stable")
    start = np.concatenate([[0], np.cumsum(np.bincount(np.concatenate(pair), minlength=pairs))])
    return Routes(
        start=start,
        links=np.concatenate(links)[order],
        weight=np.concatenate(weight)[order],
        latency_us=latency_us,
    )


def with_packets(fabric: Fabric, plan: CircuitPlan) -> Fabric:
    """Return `fabric` with routes over circuits of `plan`, and packets for pairs that lack one of theirs."""
    control = fabric.circuits
    assert control is not None
    assert control.packets is not None
    packets = control.packets

    def route(src: PairArray, dst: PairArray) -> Routes:
        src, dst = np.asarray(src, np.int32), np.asarray(dst, np.int32)
        own = fabric.route(src, dst).flat()
        assert own.start is not None
        pair = np.repeat(np.arange(len(src)), np.diff(own.start))
        circuit = own.links >= fabric.fixed_links
        dark = plan.capacity_gbps(*fabric.circuit_pair(own.links[circuit])) <= 0
        lacks = np.bincount(pair[circuit][dark], minlength=len(src)) > 0
        own_rows, rows = np.flatnonzero(~lacks), np.flatnonzero(lacks)
        parts = [
            (own_rows, fabric.route(src[own_rows], dst[own_rows])),
            (rows, packets(src[rows], dst[rows])),
        ]
        return _together(len(src), parts)

    return attrs.evolve(fabric, route=route)


def relays(
    plan: CircuitPlan, src: PairArray, dst: PairArray, traffic: TrafficMatrix | None = None
) -> NDArray[np.int32]:
    """The GPU that relays each pair; its destination where the pair has a circuit. [pairs]

    Pairs with the most to send choose first. Each takes the GPU whose fuller circuit, of the two that it
    would use, is then least full: bytes of direct and relayed pairs so far over capacity. Ties go to
    the lowest GPU.
    """
    src, dst = np.asarray(src, np.int32), np.asarray(dst, np.int32)
    weight = _weights(plan.gpus, src, dst, traffic)
    circuits = _Circuits.of(plan)
    direct = plan.capacity_gbps(src, dst) > 0
    circuits.load[np.searchsorted(circuits.key, PairIndex(plan.gpus).key(src[direct], dst[direct]))] += (
        weight[direct]
    )
    mid = dst.copy()
    for k in np.lexsort((dst, src, -weight)):
        if not direct[k]:
            mid[k] = circuits.relay(int(src[k]), int(dst[k]), weight[k])
    return mid


def _weights(gpus: int, src: PairArray, dst: PairArray, traffic: TrafficMatrix | None) -> NDArray[np.float64]:
    if traffic is None or traffic.pairs == 0:
        return np.ones(len(src))
    wanted = PairIndex(gpus).key(src, dst)
    at = np.minimum(np.searchsorted(traffic.key, wanted), traffic.pairs - 1)
    return np.where(traffic.key[at] == wanted, traffic.demand[at], 0.0)


@frozen(eq=False)
class _Circuits:
    """Circuits that carry something, by (src, dst), and what was put on each so far."""

    gpus: int
    key: NDArray[np.int64]
    gbps: NDArray[np.float64]
    load: NDArray[np.float64]
    #: Circuits that end at each GPU, as indices into `key`, in order of their source.
    entering: list[NDArray[np.intp]]

    @classmethod
    def of(cls, plan: CircuitPlan) -> _Circuits:
        lit = plan.gbps > 0
        dst = plan.dst[lit]
        order = np.argsort(dst, kind="stable")
        ends = np.searchsorted(dst[order], np.arange(plan.gpus + 1))
        return cls(
            gpus=plan.gpus,
            key=plan.key[lit],
            gbps=plan.gbps[lit],
            load=np.zeros(int(lit.sum())),
            entering=[order[ends[j] : ends[j + 1]] for j in range(plan.gpus)],
        )

    def relay(self, src: int, dst: int, weight: float) -> int:
        """Choose the GPU in between, and load both circuits."""
        first, last = np.searchsorted(self.key, [src * self.gpus, (src + 1) * self.gpus])
        leaving, entering = np.arange(first, last), self.entering[dst]
        mids, one, two = np.intersect1d(
            self.key[leaving] - src * self.gpus,
            self.key[entering] // self.gpus,
            assume_unique=True,
            return_indices=True,
        )
        if len(mids) == 0:
            raise InfeasibleError(
                f"no circuit from GPU {src} to GPU {dst}, and no GPU that both reach could relay; "
                "allow more circuits, or re-plan (interval_us)"
            )
        hops = np.vstack([leaving[one], entering[two]])
        fullness = ((self.load[hops] + weight) / self.gbps[hops]).max(axis=0)
        best = int(fullness.argmin())
        self.load[hops[:, best]] += weight
        return int(mids[best])
