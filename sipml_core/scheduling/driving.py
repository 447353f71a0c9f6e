"""The circuits of a job, and the routes that suit them."""

from __future__ import annotations

import numpy as np

from sipml_core.model import Fabric, Network, TaskGraph
from sipml_core.plugin import Estimator, Scheduler
from sipml_core.scheduling.driver import (
    ScheduledCircuits,
    circuit_traffic,
    job_bytes,
    refuse_unserved,
    unserved_pairs,
)
from sipml_core.scheduling.relay import with_packets, with_relays


def driven(
    fabric: Fabric, scheduler: Scheduler, estimator: Estimator, tasks: TaskGraph, network: Network
) -> tuple[Network, ScheduledCircuits]:
    """Return the network that the tasks use and who drives its circuits, planned for all of their traffic.

    Pairs without a circuit go by packets where there are any; where circuits are set once, they are relayed
    if the network does that.

    Parameters
    ----------
    network
        Of the tasks on the fabric.

    Raises
    ------
    InfeasibleError
        Circuits are set once and leave out a pair that cannot be relayed either.
    """
    control = fabric.circuits
    assert control is not None
    total_bytes = job_bytes(network, tasks)
    heavy = np.where(total_bytes >= control.packets_below_bytes, total_bytes, 0.0)
    driver = ScheduledCircuits(
        control=control,
        scheduler=scheduler,
        estimator=estimator.start(network, tasks),
        network=network,
        total_bytes=heavy,
    )
    if not len(unserved_pairs(network, driver.plan)):
        return network, driver
    if control.packets is not None:
        network = Network.of(with_packets(fabric, driver.plan), tasks)
        return network, driver.on(network, estimator.start(network, tasks))
    if control.interval_us is None:
        if not control.relay:
            refuse_unserved(network, driver.plan, control.circuits_per_gpu)
        relayed = with_relays(fabric, driver.plan, circuit_traffic(network, total_bytes))
        network = Network.of(relayed, tasks)
        driver = driver.on(network)
    return network, driver
