"""``ring-fast``: bisection, colouring and filling in C."""

from __future__ import annotations

from sipml_core.model import TrafficMatrix
from sipml_ring import kernel
from sipml_ring.assembling import assemble, circuits_of, followed, waits
from sipml_ring.circuits import RingCircuits
from sipml_ring.folding import first_period, planned_period, turned_round
from sipml_ring.ring_plan import RingPlan


def ring_fast(control: RingCircuits, traffic: TrafficMatrix, previous: RingPlan | None) -> RingPlan:
    """Return a near-optimal plan, of one period where the traffic repeats: see docs/sip-ring.md."""
    waited, period = waits(traffic, previous), planned_period(control, traffic, previous)
    before = circuits_of(previous, period)
    if period == control.segments:
        planned = kernel.fast(control, traffic, waited, before)
        if previous is not None and previous.period == period and planned.all_kept(before):
            return followed(previous, "ring-fast", traffic, planned, waited)
        return assemble("ring-fast", control, traffic, planned, before, waited)

    first = first_period(traffic, period)
    waited = None if waited is None else waited[: first.pairs]
    part = control.over(period)
    planned = kernel.fast(part, first, waited, before)
    return turned_round(assemble("ring-fast", part, first, planned, before, waited), control, traffic)
