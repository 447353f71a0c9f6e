"""Circuits that follow the job: the scheduler is asked at every decision instant of the engine."""

from __future__ import annotations

import copy

import numpy as np
from numpy.typing import NDArray

from sipml_core.circuits.estimators import Estimator
from sipml_core.engine.simulate import CircuitSettings
from sipml_core.errors import InfeasibleError
from sipml_core.interfaces import Scheduler
from sipml_core.model.circuits import CircuitControl, CircuitPlan, at_rows
from sipml_core.model.network import Network
from sipml_core.model.taskgraph import TaskGraph
from sipml_core.model.traffic import TrafficMatrix


def job_bytes(network: Network, tasks: TaskGraph) -> NDArray[np.float64]:
    """Bytes that the whole job sends over each circuit. [circuits]"""
    return network.link_bytes(tasks.size_bytes)[network.first_circuit :]


def circuit_traffic(network: Network, demand: NDArray[np.float64]) -> TrafficMatrix:
    """Demands on the circuits of a network, as a matrix.

    To 36 binary digits: those that are equal but for rounding are equal, so that the last digit of a sum does
    not decide which of them a scheduler serves first.
    """
    fraction, exponent = np.frexp(demand)
    demand = np.ldexp(np.round(fraction * 2.0**36), exponent - 36)
    asked = demand > 0
    return TrafficMatrix(
        gpus=network.gpus,
        src=network.circuit_src[asked],
        dst=network.circuit_dst[asked],
        demand=demand[asked],
    )


class ScheduledCircuits:
    """Drives a scheduler from the engine's decision instants.

    The first plan, made before the job starts, is for the job's whole traffic, which is known in
    advance (paper, section 3.3); its circuits are ready at time 0. Later ones are for what the
    estimator expects of the next interval.
    """

    def __init__(
        self,
        *,
        control: CircuitControl,
        scheduler: Scheduler,
        estimator: Estimator,
        network: Network,
        total_bytes: NDArray[np.float64],
    ) -> None:
        self.interval_us = control.interval_us
        self.control = control
        self.scheduler = scheduler
        self.estimator = estimator
        self.network = network
        self.plan = self._plan(total_bytes, None)
        self.plans = 1

    def on(self, network: Network) -> ScheduledCircuits:
        """The same first plan on a network whose routes were changed to suit it."""
        other = copy.copy(self)
        other.network = network
        return other

    def decide(
        self, now_us: float, sent_bytes: NDArray[np.float64], backlog_bytes: NDArray[np.float64]
    ) -> CircuitSettings | None:
        """Capacities of the circuits of the network from `now_us` on; None: leave them."""
        if now_us == 0:
            return self._settings(self.plan, at_start=True)
        demand = self.estimator(
            now_us=now_us,
            interval_us=self.interval_us or 0.0,
            sent_bytes=sent_bytes,
            backlog_bytes=backlog_bytes,
        )
        if not demand.any():
            return None
        self.plan = self._plan(demand, self.plan)
        self.plans += 1
        return self._settings(self.plan, at_start=False)

    def _plan(self, demand: NDArray[np.float64], previous: CircuitPlan | None) -> CircuitPlan:
        return self.scheduler.plan(self.control, circuit_traffic(self.network, demand), previous)

    def _settings(self, plan: CircuitPlan, *, at_start: bool) -> CircuitSettings:
        row = plan.row_of(self.network.circuit_src, self.network.circuit_dst)
        gbps = at_rows(plan.gbps, row)
        if at_start:
            return CircuitSettings(gbps=gbps, carried_gbps=gbps, dark_us=np.zeros(len(gbps)))
        if self.control.all_dark:
            dark = np.full(len(gbps), self.control.reconfiguration_us)
            return CircuitSettings(gbps=gbps, carried_gbps=np.zeros(len(gbps)), dark_us=dark)
        return CircuitSettings(
            gbps=gbps,
            carried_gbps=at_rows(plan.carried_gbps, row),
            dark_us=at_rows(plan.dark_us, row),
        )


def unserved_pairs(network: Network, plan: CircuitPlan) -> NDArray[np.intp]:
    """Circuits of the network that the plan leaves without capacity. [unserved]"""
    return np.flatnonzero(plan.capacity_gbps(network.circuit_src, network.circuit_dst) <= 0)


def refuse_unserved(network: Network, plan: CircuitPlan, circuits_per_gpu: int) -> None:
    """`InfeasibleError` naming pairs that one-shot circuits would leave out for the whole job."""
    left_out = unserved_pairs(network, plan)
    if len(left_out):
        named = ", ".join(f"{network.circuit_src[i]}->{network.circuit_dst[i]}" for i in left_out[:3])
        raise InfeasibleError(
            f"{len(left_out)} of {len(network.circuit_src)} pairs get no circuit ({named}, ...): "
            f"a GPU holds {circuits_per_gpu} at a time, and they are set once; allow more circuits, "
            "re-plan (interval_us), relay (relay = true), or use a smaller mp"
        )
