"""More peers than links: weighted permutations, held one after the other from plan to plan."""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import BYTES_PER_US_PER_GBPS, int32_matrix
from sipml_core.model import TrafficMatrix
from sipml_ocs.circuits import OcsCircuits, OcsPlan
from sipml_ocs.decomposition import decompose
from sipml_ocs.kernel import DARK
from sipml_ocs.ocs_planning import peers, plan, plans_waited


@attrs.frozen(kw_only=True, eq=False)
class CyclePlan(OcsPlan):
    """One step of a cycle in which every demanded pair has its turn."""

    #: Output of each input in each configuration of the cycle. [configurations, gpus]
    cycle_map: NDArray[np.int32] = attrs.field(converter=int32_matrix)
    #: Configuration of each switch at each step. [steps, switches]
    steps: NDArray[np.int32] = attrs.field(converter=int32_matrix)
    #: The step that this plan is.
    step: int
    #: What the permutations take, with the delay before each, over the bound.
    of_bound: float

    @property
    def remarks(self) -> tuple[str, ...]:
        """See `CircuitPlan.remarks`."""
        return (
            f"plan {self.step + 1} of {len(self.steps)}, in which all pairs have their turn: "
            f"{len(self.cycle_map)} permutations, which take {self.of_bound:.3f} of the bound",
        )


def plan_cycle(
    control: OcsCircuits,
    traffic: TrafficMatrix,
    previous: OcsPlan | None,
    *,
    least_steps: int,
    always: bool = False,
) -> OcsPlan:
    """Return the circuits of the next interval.

    Where one plan can serve every pair (unless `always`) it is that of `plan`. Elsewhere the demands are
    decomposed into weighted permutations for a cycle of `least_steps` intervals, or as many as it takes to
    give each permutation one, and each plan is a step of that cycle. A new cycle begins when it is through,
    or when no pair that asks has a circuit.
    """
    if not always and peers(traffic) <= control.switches:
        return plan(
            traffic,
            switches=control.switches,
            link_gbps=control.circuit_gbps,
            previous=previous,
            reconfiguration_us=control.reconfiguration_us,
        )
    if isinstance(previous, CyclePlan) and previous.step + 1 < len(previous.steps):
        made = _step(control, traffic, previous, previous)
        if (made.capacity_gbps(traffic.src, traffic.dst) > 0).any():
            return made
    return _step(control, traffic, previous, _cycle(control, traffic, least_steps))


@attrs.frozen(kw_only=True, eq=False)
class _Cycle:
    """See `CyclePlan`; `step` is the one before the first."""

    cycle_map: NDArray[np.int32]
    steps: NDArray[np.int32]
    of_bound: float
    step: int = -1


def _cycle(control: OcsCircuits, traffic: TrafficMatrix, least_steps: int) -> _Cycle:
    """Return the configurations of a cycle, and the one of each switch at each step.

    Only ratios of demands count: the busiest port is taken to send for the whole cycle.
    """
    cycle_us = least_steps * (control.interval_us or 1.0)
    busiest = max(np.bincount(ends, traffic.demand).max() for ends in (traffic.src, traffic.dst))
    # Demands in units in which that port, with all its links, sends for `cycle_us`.
    unit = BYTES_PER_US_PER_GBPS * control.circuit_gbps * control.switches * cycle_us / busiest
    made = decompose(
        attrs.evolve(traffic, demand=traffic.demand * unit),
        switches=control.switches,
        link_gbps=control.circuit_gbps,
        reconfiguration_us=min(control.reconfiguration_us, cycle_us),
    )
    length = max(least_steps, -(-made.configurations // control.switches))
    slots = apportioned(made.duration_us, length * control.switches)
    # One switch after the other, so that a configuration of several slots stays where it is.
    in_order = np.repeat(np.arange(made.configurations), slots)
    return _Cycle(
        cycle_map=made.port_map,
        steps=in_order.reshape(control.switches, length).T.astype(np.int32),
        of_bound=made.makespan_us / made.bound_us,
    )


def apportioned(weights: NDArray[np.float64], slots: int) -> NDArray[np.int64]:
    """Return how many slots each weight gets: one at least, the least slots / weight at its largest.

    >>> apportioned(np.array([6.0, 3.0, 0.5]), 7).tolist()
    [4, 2, 1]
    """
    given = np.ones(len(weights), dtype=np.int64)
    for _ in range(slots - len(weights)):
        given[int(np.argmin(given / weights))] += 1
    return given


def _step(
    control: OcsCircuits,
    traffic: TrafficMatrix,
    previous: OcsPlan | None,
    cycle: _Cycle | CyclePlan,
) -> CyclePlan:
    """Return the next step of a cycle as a plan."""
    step = cycle.step + 1
    gpus, port_map = control.gpus, cycle.cycle_map[cycle.steps[step]]
    lit = port_map != DARK
    stays = lit & (port_map == previous.port_map) if previous is not None else np.zeros_like(lit)
    # A key for each circuit, and whether it was there before. [circuits]
    _, source = np.nonzero(lit)
    key, row, circuits = np.unique(
        source * np.int64(gpus) + port_map[lit], return_inverse=True, return_counts=True
    )
    kept = np.bincount(row.reshape(-1), stays[lit], len(key)).astype(np.int32)
    gbps = circuits * control.circuit_gbps
    changed = (kept < circuits) & (control.reconfiguration_us > 0)
    waits = np.flatnonzero(~np.isin(traffic.key, key))
    return CyclePlan(
        gpus=gpus,
        src=key // gpus,
        dst=key % gpus,
        gbps=gbps,
        kept_gbps=np.where(changed, kept * control.circuit_gbps, gbps),
        dark_us=np.where(changed, control.reconfiguration_us, 0.0),
        traffic=traffic,
        link_gbps=control.circuit_gbps,
        circuits=circuits,
        kept=kept,
        port_map=port_map,
        unserved_src=traffic.src[waits],
        unserved_dst=traffic.dst[waits],
        unserved_plans=plans_waited(traffic, previous)[waits] + 1,
        algorithm="ocs-decompose",
        proved=False,
        cycle_map=cycle.cycle_map,
        steps=cycle.steps,
        step=step,
        of_bound=cycle.of_bound,
    )
