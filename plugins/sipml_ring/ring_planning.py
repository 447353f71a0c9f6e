"""A traffic matrix in, a plan out."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pkgutil import resolve_name
from typing import Any

from sipml_core.errors import ConfigError, shown, unknown
from sipml_core.model import TrafficMatrix
from sipml_ring import kernel
from sipml_ring.circuits import RingCircuits
from sipml_ring.ring_plan import RingPlan, same_pairs

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
    """Return circuits on a ring of GPUs for a traffic matrix.

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
        Demands that are no `TrafficMatrix`, a parameter is out of range, a pair out of reach, or `previous`
        is of another ring.

    Examples
    --------
    Everybody has both wavelengths to the next GPU clockwise; 0, whose demand is twice that of the others,
    also both counter-clockwise. That is 2 circuits of 25 Gbps per unit of demand for all.

    >>> traffic = TrafficMatrix.from_dense([[0, 2, 0], [0, 0, 1], [1, 0, 0]])
    >>> made = plan(traffic, wavelengths=4)
    >>> made.count.tolist(), made.minimum_ratio
    ([[2, 2], [2, 0], [2, 0]], 50.0)
    """
    if not isinstance(traffic, TrafficMatrix):
        raise ConfigError(
            f"traffic must be a TrafficMatrix, as TrafficMatrix.from_dense makes one, got {shown(traffic)}"
        )
    control = RingCircuits.of(
        traffic.gpus,
        wavelengths,
        circuit_gbps=channel_gbps,
        reach_hops=reach_hops,
        wavelength=wavelength,
        reconfiguration_us=reconfiguration_us,
    )
    made = plan_with(algorithm, control, traffic, previous, **options)
    control.check(made)
    return made


def plan_with(
    algorithm: str,
    control: RingCircuits,
    traffic: TrafficMatrix,
    previous: RingPlan | None,
    **options: Any,
) -> RingPlan:
    """Return the `plan` for a ring that is described already: see there."""
    if control.gpus != traffic.gpus:
        raise ConfigError(f"the traffic matrix is for {traffic.gpus} GPUs, the ring has {control.gpus}")
    if algorithm != "ring-fast":  # whose kernel looks itself
        refuse_small(traffic)
    if previous is not None:
        _same_ring(control, previous.control)
        if algorithm == previous.algorithm and _unchanged(traffic, previous):
            return previous.settled()
    return _algorithm(algorithm)(control, traffic, previous, **options)


def refuse_small(traffic: TrafficMatrix) -> None:
    """`ConfigError` naming a demand that is too small to divide by."""
    if traffic.pairs and traffic.demand.min() < kernel.LEAST_DEMAND:
        raise ConfigError(kernel.small_demand(float(traffic.demand.min())))


def _unchanged(traffic: TrafficMatrix, previous: RingPlan) -> bool:
    """Return whether the demands are the same and all served: the plan in force is the answer."""
    old = previous.traffic
    if len(previous.unserved) or len(traffic.demand) != len(old.demand):
        return False
    # Demands first, which nearly always differ; as bytes, for arrays of a few dozen are compared in no time.
    if traffic is old or traffic.demand.tobytes() != old.demand.tobytes():
        return traffic is old
    return same_pairs(traffic, old)


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


@cache
def _algorithm(name: str) -> Algorithm:
    # Only the one that is asked for: HiGHS, of the other two, takes long to import.
    known = {"ring-fast": "fast:ring_fast", "ring-ilp": "ilp:ring_ilp", "ring-mcf": "mcf:ring_mcf"}
    if name not in known:
        raise ConfigError(unknown("ring algorithm", name, known))
    algorithm: Algorithm = resolve_name(f"sipml_ring.{known[name]}")
    return algorithm
