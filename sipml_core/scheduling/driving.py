"""The circuits of a job, and the routes that suit them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sipml_core.model import Fabric, Network, TaskGraph
from sipml_core.plugin import DemandForecast, Estimator, Scheduler
from sipml_core.scheduling.circuittraffic import circuit_traffic
from sipml_core.scheduling.demandrules import BYTES, DemandRule
from sipml_core.scheduling.driver import (
    ScheduledCircuits,
    crowded,
    job_bytes,
    refuse_unserved,
    unserved_pairs,
)
from sipml_core.scheduling.jobphases import TransferParts, all_job_phases
from sipml_core.scheduling.kindphases import Bursts
from sipml_core.scheduling.phasedcircuits import PhasedCircuits
from sipml_core.scheduling.relay import with_packets, with_relays


def driven(
    fabric: Fabric,
    scheduler: Scheduler,
    estimator: Estimator,
    tasks: TaskGraph,
    network: Network,
    rule: DemandRule = BYTES,
    gates: NDArray[np.int64] | None = None,
    replan_above: float = 0.0,
    parts: TransferParts | None = None,
) -> tuple[Network, ScheduledCircuits]:
    """Return the network that the tasks use and who drives its circuits, planned for all of their traffic.

    Pairs without a circuit go by packets where there are any; where circuits are set once, they are relayed
    if the network does that.

    Parameters
    ----------
    network
        Of the tasks on the fabric.
    rule, gates, replan_above
        See `ScheduledCircuits`.
    parts
        Of the tasks: circuits are planned for the phases of each iteration; None, and where they are set
        once: they are not.

    Raises
    ------
    InfeasibleError
        Circuits are set once and leave out a pair that cannot be relayed either.
    """
    control = fabric.circuits
    assert control is not None
    total_bytes = job_bytes(network, tasks)

    def forecast(network: Network) -> DemandForecast:
        return estimator.start_where(network, tasks, crowded=partial(crowded, scheduler, control, network))

    heavy = np.where(total_bytes >= control.packets_below_bytes, total_bytes, 0.0)
    circuits: Callable[..., ScheduledCircuits] = ScheduledCircuits
    if parts is not None and control.interval_us is not None:
        phases = all_job_phases(network, tasks, parts)
        bursts = _bursts(network, tasks, parts)
        circuits = partial(PhasedCircuits, phases=phases, bursts=bursts, by_interval=parts.by_interval)
    driver = circuits(
        control=control,
        scheduler=scheduler,
        estimator=forecast(network),
        network=network,
        total_bytes=heavy,
        rule=rule,
        gates=gates,
        replan_above=replan_above,
    )
    if not len(unserved_pairs(network, driver.plan)):
        return network, driver
    if control.packets is not None:
        network = Network.of(with_packets(fabric, driver.plan), tasks)
        return network, driver.on(network, forecast(network))
    if control.interval_us is None:
        if not control.relay:
            refuse_unserved(network, driver.plan, control.circuits_per_gpu)
        relayed = with_relays(fabric, driver.plan, circuit_traffic(network, total_bytes))
        network = Network.of(relayed, tasks)
        driver = driver.on(network)
    return network, driver


def _bursts(network: Network, tasks: TaskGraph, parts: TransferParts) -> Bursts | None:
    """Return the bursts of a job whose kinds of activations are told apart."""
    if not parts.by_kind or tasks.kind is None:
        return None
    from sipml_core.engine import simulate  # here: plugins load this room, and need no engine

    return Bursts.of(network, tasks, parts, simulate(tasks, network.with_ports_only()))
