"""A scheduler that gives what its plans leave idle to pairs that will send next."""

from __future__ import annotations

from sipml_core.model import CircuitControl, CircuitPlan, TrafficMatrix
from sipml_core.plugin import PlansAhead, Scheduler


class WithNext(Scheduler):
    """Plans as another scheduler does, with circuits for traffic that comes later where ports are idle."""

    summary = "another scheduler, for some traffic that comes later"

    def __init__(self, scheduler: Scheduler, later: TrafficMatrix) -> None:
        super().__init__(scheduler.options)
        assert isinstance(scheduler, PlansAhead)
        self._scheduler, self._later = scheduler, later
        self.name = scheduler.name  # type: ignore[misc]
        self.plans = scheduler.plans  # type: ignore[misc]

    def plan(
        self, control: CircuitControl, traffic: TrafficMatrix, previous: CircuitPlan | None
    ) -> CircuitPlan:
        """See `Scheduler.plan`."""
        return self._scheduler.plan_ahead(control, traffic, previous, self._later)
