"""A plan from what the kernel returned, and what it needs to know of the plan in force."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sipml_core.model import TrafficMatrix
from sipml_ring import kernel
from sipml_ring.circuits import RingCircuits
from sipml_ring.lightpaths import Lightpaths
from sipml_ring.ring_plan import RingPlan, same_pairs

#: Pairs that wait, where there are none.
_NOBODY = np.empty(0, np.int32)


def assemble(
    algorithm: str,
    control: RingCircuits,
    traffic: TrafficMatrix,
    planned: kernel.Planned,
    before: Lightpaths | None,
    waited: NDArray[np.int32] | None,
    proved: bool | None = None,
) -> RingPlan:
    """Return the plan of what a kernel returned for these circuits before and these `waits`."""
    circuits = planned.circuits
    given = kernel.capacities(planned, control.circuit_gbps, control.reconfiguration_us)
    dark_us = given.dark_us
    if control.retuning is not None:
        times_us = control.retuning.circuit_times_us(
            before, circuits, gpus=control.gpus, segments=control.segments
        )
        dark_us = np.zeros(len(circuits.src))
        np.maximum.at(dark_us, circuits.pair, times_us)  # the slowest circuit of each pair

    return RingPlan.made(
        gpus=control.gpus,
        src=circuits.src,
        dst=circuits.dst,
        gbps=given.gbps,
        kept_gbps=given.kept_gbps,
        dark_us=dark_us,
        control=control,
        traffic=traffic,
        algorithm=algorithm,
        demand=planned.demand,
        count=planned.count,
        period_circuits=circuits,
        unserved=planned.unserved,
        waited=_waits_now(planned, waited),
        proved=proved,
        period=control.segments,
    )


def followed(
    previous: RingPlan,
    algorithm: str,
    traffic: TrafficMatrix,
    planned: kernel.Planned,
    waited: NDArray[np.int32] | None,
) -> RingPlan:
    """Return what `assemble` does of a kernel that returned the circuits of the previous plan.

    All but the demands is taken from that plan, so that nothing needs to be compared or checked again.
    """
    return previous.settled().with_fields(
        traffic=traffic,
        algorithm=algorithm,
        demand=planned.demand,
        unserved=planned.unserved,
        waited=_waits_now(planned, waited),
        proved=None,
    )


def _waits_now(planned: kernel.Planned, waited: NDArray[np.int32] | None) -> NDArray[np.int32]:
    """Return for how many plans, this one included, each pair without a circuit has waited. [unserved]"""
    if not len(planned.unserved):
        return _NOBODY
    waits_now = np.ones(len(planned.unserved), np.int32)
    if waited is not None:
        waits_now += waited[planned.unserved]
    return waits_now


def circuits_of(previous: RingPlan | None, period: int | None = None) -> Lightpaths | None:
    """Return the circuits of a plan, if there is one; with `period`, those of its first senders."""
    if previous is None or period is None:
        return None if previous is None else previous.circuits
    if period == previous.period:
        return previous.period_circuits
    circuits = previous.circuits
    rows = int(np.searchsorted(circuits.src, period))
    count = int(np.searchsorted(circuits.pair, rows))
    return Lightpaths(
        src=circuits.src[:rows],
        dst=circuits.dst[:rows],
        pair=circuits.pair[:count],
        direction=circuits.direction[:count],
        index=circuits.index[:count],
    )


def waits(traffic: TrafficMatrix, previous: RingPlan | None) -> NDArray[np.int32] | None:
    """Return for how many plans each pair has waited; None: no pair has. [traffic pairs]"""
    if previous is None or len(previous.unserved) == 0 or traffic.pairs == 0:
        return None
    if same_pairs(traffic, previous.traffic):
        result = np.zeros(traffic.pairs, np.int32)
        result[previous.unserved] = previous.waited
        return result

    # at: row of `traffic` where each pair that waited should be; same: whether it is there.
    key = previous.traffic.key[previous.unserved]
    at = np.minimum(np.searchsorted(traffic.key, key), traffic.pairs - 1)
    same = traffic.key[at] == key
    result = np.zeros(traffic.pairs, np.int32)
    result[at[same]] = previous.waited[same]
    return result
