"""Circuits for a traffic matrix: who gets how many, and on which switches."""

from __future__ import annotations

import math
import operator

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError, shown, unknown
from sipml_core.model import TrafficMatrix
from sipml_ocs.circuits import OcsPlan
from sipml_ocs.kernel import DARK, Problem

ALGORITHMS = ("ocs-exact", "ocs-ilp")


def plan(
    traffic: TrafficMatrix,
    *,
    switches: int,
    link_gbps: float,
    algorithm: str = "ocs-exact",
    previous: OcsPlan | None = None,
    reconfiguration_us: float = 0.0,
    formulation: str = "compact",
    time_limit_s: float = 60.0,
) -> OcsPlan:
    """Plan the circuits of `switches` optical switches that join all GPUs of `traffic`.

    In this order: maximise the least circuits / demand; leave no port idle that a demanded pair can
    use, the pair with the least circuits / demand first; change as little as possible of `previous`.
    The first is exact. For the last, ties between pairs go to those that had more circuits before,
    circuits that are still wanted start on their old switch, and the colouring takes the path that
    moves the fewest; circuits without demand stay where nobody needs the ports. The same demand
    again changes nothing.

    If a GPU has more peers than there are switches, some pairs get no circuit: pairs are admitted in
    the order of plans they have waited (most first), then demand (largest first), then (src, dst), each
    while both its ends have room. A pair with n competitors at its two ends waits at most n / switches
    plans. Everything else is then planned for the admitted pairs.

    Parameters
    ----------
    traffic
        Demands in any unit: only ratios matter.
    link_gbps
        Capacity of one circuit. [Gbps]
    algorithm
        "ocs-exact": bisection; "ocs-ilp": the mixed-integer programme of A.2, by HiGHS, to check it.
    reconfiguration_us
        Time for which circuits that were not in `previous` on the same switch are dark. [us]
    formulation, time_limit_s
        For "ocs-ilp": "compact" or "permutations" (`sipml_ocs.ilp`), and the time it may take. [s]

    Raises
    ------
    ConfigError
        Demands that are no `TrafficMatrix`, a number of switches below 1, an unknown algorithm, a `previous`
        of another network.

    References
    ----------
    Khani et al., SiP-ML, SIGCOMM 2021, section 3.3 and appendix A.2. Koenig, Math. Ann. 77, 1916.
    """
    _check(traffic, switches, link_gbps, algorithm, previous)
    waited = plans_waited(traffic, previous)
    admitted = _admitted(traffic, switches, waited)
    served = traffic if admitted.all() else _subset(traffic, admitted)
    problem = Problem(served, switches)
    if algorithm == "ocs-exact":
        circuits, proved = problem.maxmin(), True
    else:
        from sipml_ocs.ilp import fewest  # HiGHS takes long to import

        circuits, proved = fewest(problem, served, formulation, time_limit_s)
    old_map = None if previous is None else previous.port_map
    circuits = problem.fill(circuits, old_map)
    port_map, kept, retained = problem.colour(circuits, old_map)
    src, dst = served.src, served.dst
    if retained:
        src, dst, circuits, kept = _with_retained(served, circuits, kept, port_map)
    gbps = circuits * link_gbps
    changed = (kept < circuits) & (reconfiguration_us > 0)
    waits = np.flatnonzero(~admitted)
    return OcsPlan(
        gpus=traffic.gpus,
        src=src,
        dst=dst,
        gbps=gbps,
        kept_gbps=np.where(changed, kept * link_gbps, gbps),
        dark_us=np.where(changed, reconfiguration_us, 0.0),
        traffic=traffic,
        link_gbps=link_gbps,
        circuits=circuits,
        kept=kept,
        port_map=port_map,
        unserved_src=traffic.src[waits],
        unserved_dst=traffic.dst[waits],
        unserved_plans=waited[waits] + 1,
        algorithm=algorithm,
        proved=proved,
    )


def _check(
    traffic: TrafficMatrix, switches: int, link_gbps: float, algorithm: str, previous: OcsPlan | None
) -> None:
    if not isinstance(traffic, TrafficMatrix):
        raise ConfigError(
            f"traffic must be a TrafficMatrix, as TrafficMatrix.from_dense makes one, got {shown(traffic)}"
        )
    try:
        whole = operator.index(switches)
    except TypeError:
        whole = 0
    if whole < 1:
        raise ConfigError(f"switches must be a whole number of at least 1, got {switches!r}")
    if not (math.isfinite(link_gbps) and link_gbps > 0):
        raise ConfigError(f"link_gbps must be positive, got {link_gbps!r}")
    if algorithm not in ALGORITHMS:
        raise ConfigError(unknown("algorithm", algorithm, ALGORITHMS))
    if previous is not None and (previous.gpus, previous.switches) != (traffic.gpus, switches):
        raise ConfigError(
            f"the previous plan has {previous.gpus} GPUs and {previous.switches} switches, "
            f"this one {traffic.gpus} and {switches}"
        )


def peers(traffic: TrafficMatrix) -> int:
    """Return the most pairs that one port has."""
    return int(max(np.bincount(ends, minlength=1).max() for ends in (traffic.src, traffic.dst)))


def plans_waited(traffic: TrafficMatrix, previous: OcsPlan | None) -> NDArray[np.int32]:
    """Return how many plans in a row, up to the previous one, left each pair without a circuit. [pairs]"""
    waited = np.zeros(traffic.pairs, dtype=np.int32)
    if previous is not None and len(previous.unserved_src):
        before = previous.unserved_src.astype(np.int64) * traffic.gpus + previous.unserved_dst
        _, here, there = np.intersect1d(traffic.key, before, assume_unique=True, return_indices=True)
        waited[here] = previous.unserved_plans[there]
    return waited


def _admitted(traffic: TrafficMatrix, switches: int, waited: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return which pairs are to get at least one circuit. [pairs]"""
    if peers(traffic) <= switches:
        return np.ones(traffic.pairs, dtype=np.bool_)
    return Problem(traffic, switches).admit(_by_claim(traffic, waited))


def _by_claim(traffic: TrafficMatrix, waited: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the pairs by plans waited (most first), demand (largest first), distance and number. [pairs]

    Among equals the nearest on the circle of GPUs: by number alone, the first few would form a clique.

    Examples
    --------
    Of 1 -> 0, 1 -> 2 and 2 -> 1 the last has waited; 1 -> 2 is nearer than 1 -> 0.

    >>> traffic = TrafficMatrix.from_pairs(3, [1, 1, 2], [0, 2, 1], [5.0, 5.0, 1.0])
    >>> _by_claim(traffic, np.array([0, 0, 1], np.int32)).tolist()
    [2, 1, 0]
    """
    longest = int(waited.max(initial=0))
    order = np.argsort(-traffic.demand)
    smaller = np.diff(traffic.demand[order]) < 0  # than the one before. [pairs - 1]
    if longest == 0 and smaller.all():
        return order
    distance = (traffic.dst - traffic.src) % traffic.gpus
    if (longest + 1) * traffic.pairs**2 * traffic.gpus >= 2**63:
        return np.lexsort((distance, -traffic.demand, -waited))
    # One number for all four, which sorts in a tenth of the time. rank: of the demand, 0 the largest.
    rank = np.empty(traffic.pairs, np.int64)
    rank[order] = np.append(0, np.cumsum(smaller))
    claim = (longest - waited.astype(np.int64)) * traffic.pairs + rank
    return np.argsort((claim * traffic.gpus + distance) * traffic.pairs + np.arange(traffic.pairs))


def _subset(traffic: TrafficMatrix, chosen: NDArray[np.bool_]) -> TrafficMatrix:
    rows = np.flatnonzero(chosen)
    return attrs.evolve(traffic, src=traffic.src[rows], dst=traffic.dst[rows], demand=traffic.demand[rows])


def _with_retained(
    served: TrafficMatrix, circuits: NDArray[np.int32], kept: NDArray[np.int32], port_map: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """Return sources, destinations, circuits and kept ones, with the circuits that nobody demands."""
    _, source = np.nonzero(port_map != DARK)
    key = source * np.int64(served.gpus) + port_map[port_map != DARK]
    undemanded, count = np.unique(key[~np.isin(key, served.key)], return_counts=True)
    every = np.concatenate([served.key, undemanded])
    order = np.argsort(every)
    every = every[order]
    return (
        (every // served.gpus).astype(np.int32),
        (every % served.gpus).astype(np.int32),
        np.concatenate([circuits, count])[order].astype(np.int32),
        np.concatenate([kept, count])[order].astype(np.int32),
    )
