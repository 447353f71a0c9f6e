"""A traffic matrix in, a plan out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError, unknown
from sipml_core.model import TrafficMatrix
from sipml_ring import kernel
from sipml_ring.circuits import RingCircuits
from sipml_ring.folding import first_circuits, first_period, planned_period, turned_round
from sipml_ring.ringplan import RingPlan

#: Below, wavelengths / demand would overflow, and bisection on it never end.
LEAST_DEMAND = 1e-200

Algorithm = Callable[..., RingPlan]


def plan(
    traffic: TrafficMatrix,
    *,
    wavelengths: int,
    reach_hops: int = 16,
    channel_gbps: float = 25.0,
    algorithm: str = "ring-fast",
    wavelength: str = "continuous",
    previous: RingPlan | None = None,
    reconfiguration_us: float = 25.0,
    **options: Any,
) -> RingPlan:
    """Circuits on a ring of GPUs for a traffic matrix.

    Maximises the minimum of circuits / demand, then leaves no wavelength idle that a demanded pair can
    use (lowest circuits / demand first), then keeps wavelengths of `previous`.

    Parameters
    ----------
    traffic
        Demands between GPUs on a ring in the order of their numbers.
    wavelengths
        Of one GPU; half of them run clockwise, half counter-clockwise, an odd one clockwise.
    reach_hops
        Segments that a circuit may span, in either direction.
    channel_gbps
        Capacity of one wavelength. [Gbps]
    algorithm
        "ring-fast", "ring-ilp" or "ring-mcf".
    wavelength
        "continuous": the same index end to end. "converted": GPUs on the way may change it.
    previous
        The plan in force: what it shares with the new one keeps carrying, and its unserved pairs come
        first.
    reconfiguration_us
        How long a changed circuit is dark. [us]
    **options
        Of the algorithm: ``time_limit_s`` of "ring-ilp".

    Raises
    ------
    ConfigError
        A parameter is out of range, a pair out of reach, or `previous` is of another ring.

    Examples
    --------
    >>> traffic = TrafficMatrix.from_dense([[0, 2, 0], [0, 0, 1], [1, 0, 0]])
    >>> plan(traffic, wavelengths=4).minimum_ratio
    37.5
    """
    control = RingCircuits.of(
        traffic.gpus,
        wavelengths,
        circuit_gbps=channel_gbps,
        reach_hops=reach_hops,
        wavelength=wavelength,
        reconfiguration_us=reconfiguration_us,
    )
    return plan_with(algorithm, control, traffic, previous, **options)


def plan_with(
    algorithm: str,
    control: RingCircuits,
    traffic: TrafficMatrix,
    previous: RingPlan | None,
    **options: Any,
) -> RingPlan:
    """`plan` for a ring that is described already. See there."""
    if control.gpus != traffic.gpus:
        raise ConfigError(f"the traffic matrix is for {traffic.gpus} GPUs, the ring has {control.gpus}")
    if traffic.pairs and traffic.demand.min() < LEAST_DEMAND:
        raise ConfigError(
            f"demands on the ring must be at least {LEAST_DEMAND:g}, got {traffic.demand.min()}; "
            "any unit will do"
        )
    if previous is not None:
        _same_ring(control, previous.control)
        if algorithm == previous.algorithm and _unchanged(traffic, previous):
            return previous.settled()
    result = _algorithm(algorithm)(control, traffic, previous, **options)
    if __debug__:
        result.check()
    return result


def ring_fast(control: RingCircuits, traffic: TrafficMatrix, previous: RingPlan | None) -> RingPlan:
    """Bisection, colouring and filling in C: see docs/sip-ring.md."""
    waited, before = waits(traffic, previous), circuits_of(previous)
    period = planned_period(control, traffic, previous)
    if period == control.segments:
        planned = kernel.fast(control, traffic, waited, before)
        return assemble("ring-fast", control, traffic, planned, before, waited)
    first, before = first_period(traffic, period), first_circuits(before, period)
    waited = None if waited is None else waited[: first.pairs]
    planned = kernel.fast(control.over(period), first, waited, before)
    plan = assemble("ring-fast", control.over(period), first, planned, before, waited)
    return turned_round(plan, control, traffic)


def assemble(
    algorithm: str,
    control: RingCircuits,
    traffic: TrafficMatrix,
    planned: kernel.Planned,
    before: kernel.Circuits | None,
    waited: NDArray[np.int32] | None,
    proved: bool | None = None,
) -> RingPlan:
    """A plan from what a kernel returned for these circuits before and these `waits`."""
    circuits, total = planned.circuits, planned.count.sum(axis=1)
    waits_now = np.ones(len(planned.unserved), np.int32)
    if waited is not None:
        waits_now += waited[planned.unserved]
    dark_us = np.where(planned.kept < total, control.reconfiguration_us, 0.0)
    if control.retuning is not None:
        times_us = control.retuning.circuit_times_us(control, before, circuits)
        dark_us = np.zeros(len(total))
        np.maximum.at(dark_us, circuits.pair, times_us)
    return RingPlan(
        gpus=control.gpus,
        src=circuits.src,
        dst=circuits.dst,
        gbps=total * control.circuit_gbps,
        kept_gbps=planned.kept * control.circuit_gbps,
        dark_us=dark_us,
        control=control,
        traffic=traffic,
        algorithm=algorithm,
        demand=planned.demand,
        count=planned.count,
        circuit_pair=circuits.pair,
        circuit_direction=circuits.direction,
        circuit_index=circuits.index,
        unserved=planned.unserved,
        waited=waits_now,
        proved=proved,
        period=control.segments,
    )


def circuits_of(previous: RingPlan | None) -> kernel.Circuits | None:
    return None if previous is None else previous.circuits


def waits(traffic: TrafficMatrix, previous: RingPlan | None) -> NDArray[np.int32] | None:
    """Plans for which each pair has waited. None: no pair has. [traffic pairs]"""
    if previous is None or len(previous.unserved) == 0 or traffic.pairs == 0:
        return None
    key = previous.traffic.key[previous.unserved]
    at = np.minimum(np.searchsorted(traffic.key, key), traffic.pairs - 1)
    same = traffic.key[at] == key
    result = np.zeros(traffic.pairs, np.int32)
    result[at[same]] = previous.waited[same]
    return result


def _unchanged(traffic: TrafficMatrix, previous: RingPlan) -> bool:
    """The same demands, all served: the plan in force is the answer."""
    old = previous.traffic
    return len(previous.unserved) == 0 and (
        traffic is old
        or (
            np.array_equal(traffic.demand, old.demand)
            and np.array_equal(traffic.src, old.src)
            and np.array_equal(traffic.dst, old.dst)
        )
    )


def _same_ring(control: RingCircuits, old: RingCircuits) -> None:
    if control is old:
        return
    names = ("gpus", "period", "clockwise", "counterclockwise", "reach_hops", "wavelength", "circuit_gbps")
    for name in names:
        if getattr(control, name) != getattr(old, name):
            raise ConfigError(
                f"the previous plan is of another ring: {name} was {getattr(old, name)!r}, "
                f"is {getattr(control, name)!r}"
            )


def _algorithm(name: str) -> Algorithm:
    from sipml_ring.ilp import ring_ilp
    from sipml_ring.mcf import ring_mcf

    known: dict[str, Algorithm] = {"ring-fast": ring_fast, "ring-ilp": ring_ilp, "ring-mcf": ring_mcf}
    if name not in known:
        raise ConfigError(unknown("ring algorithm", name, known))
    return known[name]
