"""``ring-fast``: bisection, colouring and filling in C."""

from __future__ import annotations

from sipml_core.model import TrafficMatrix
from sipml_ring import kernel
from sipml_ring.ahead import with_later
from sipml_ring.assembling import assemble, circuits_of, followed, waits
from sipml_ring.circuits import RingCircuits
from sipml_ring.folding import first_period, planned_period, repeats, turned_round
from sipml_ring.ring_plan import RingPlan


def ring_fast(
    control: RingCircuits,
    traffic: TrafficMatrix,
    previous: RingPlan | None,
    later: TrafficMatrix | None = None,
) -> RingPlan:
    """Return a near-optimal plan, of one period where the traffic repeats: see docs/sip-ring.md.

    What it leaves idle is for `later` traffic, where that repeats as the plan does: see `with_later`.
    """
    waited, period = waits(traffic, previous), planned_period(control, traffic, previous)
    before = circuits_of(previous, period)
    if period == control.segments:
        planned = kernel.fast(control, traffic, waited, before)
        if later is not None and _is_free(control):
            planned = with_later(control, planned, traffic, later)
        if planned.same and previous is not None and previous.period == period:
            return followed(previous, "ring-fast", traffic, planned, waited)
        return assemble("ring-fast", control, traffic, planned, before, waited)

    first = first_period(traffic, period)
    waited = None if waited is None else waited[: first.pairs]
    part = control.over(period)
    planned = kernel.fast(part, first, waited, before)
    if later is not None and _is_free(control) and repeats(control, later, period):
        planned = with_later(part, planned, first, first_period(later, period))
    return turned_round(assemble("ring-fast", part, first, planned, before, waited), control, traffic)


def _is_free(control: RingCircuits) -> bool:
    """Return whether a circuit more darkens no other, and one index is all that it needs."""
    return control.retuning is None and control.wavelength == "continuous"
