"""Three schedulers of the wavelengths of a ring."""

from __future__ import annotations

from typing import Any

import attrs

from sipml_core.errors import ConfigError
from sipml_core.fields import option, positive
from sipml_core.model import CircuitControl, CircuitPlan, TrafficMatrix, TreatsAlike
from sipml_core.plugin import Scheduler
from sipml_ring.circuits import RingCircuits
from sipml_ring.ring_plan import RingPlan
from sipml_ring.ring_planning import plan_with


def _plan(
    scheduler: str,
    control: CircuitControl,
    traffic: TrafficMatrix,
    previous: CircuitPlan | None,
    **options: Any,
) -> RingPlan:
    assert isinstance(control, RingCircuits)  # `plans` says so
    if previous is not None and not isinstance(previous, RingPlan):
        raise ConfigError(f"scheduler {scheduler!r} cannot continue a {type(previous).__name__}")
    return plan_with(scheduler, control, traffic, previous, **options)


class RingFast(TreatsAlike, Scheduler):
    """Bisection, circular-arc colouring and filling, in C."""

    name = "ring-fast"
    summary = "near-optimal max-min wavelengths for a ring, in milliseconds"
    plans = RingCircuits

    def plan(
        self, control: CircuitControl, traffic: TrafficMatrix, previous: CircuitPlan | None
    ) -> CircuitPlan:
        return _plan(self.name, control, traffic, previous)

    def plan_ahead(
        self,
        control: CircuitControl,
        traffic: TrafficMatrix,
        previous: CircuitPlan | None,
        later: TrafficMatrix,
    ) -> CircuitPlan:
        """See `PlansAhead`."""
        return _plan(self.name, control, traffic, previous, later=later)


class RingIlp(Scheduler):
    """The integer programme of appendix A.1, by HiGHS: to check `ring-fast`."""

    name = "ring-ilp"
    summary = "the paper's integer programme (A.1) for ring wavelengths, solved by HiGHS"
    plans = RingCircuits

    @attrs.frozen(kw_only=True)
    class Options:
        time_limit_s: float = option(
            60.0, doc="time HiGHS may take for one plan", unit="s", validator=positive
        )

    def plan(
        self, control: CircuitControl, traffic: TrafficMatrix, previous: CircuitPlan | None
    ) -> CircuitPlan:
        return _plan(self.name, control, traffic, previous, time_limit_s=self.options.time_limit_s)


class RingMcf(Scheduler):
    """The paper's fast approximation, to compare with: see docs/sip-ring.md for what it loses."""

    name = "ring-mcf"
    summary = "the paper's min-cost flow with rounding for ring wavelengths (inferior to ring-fast)"
    plans = RingCircuits

    def plan(
        self, control: CircuitControl, traffic: TrafficMatrix, previous: CircuitPlan | None
    ) -> CircuitPlan:
        return _plan(self.name, control, traffic, previous)
