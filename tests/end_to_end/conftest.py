"""Tasks on a bundled interconnect, with the circuits that its own scheduler plans."""

import pytest

from sipml_core.engine.simulation import simulate
from sipml_core.model.cluster import Cluster
from sipml_core.model.network import Network
from sipml_core.scheduling.driver import ScheduledCircuits, job_bytes


@pytest.fixture(scope="session")
def scheduled(registry):
    """scheduled(tasks, name, bandwidth_gbps, ...): fabric, network and driver; packets have no driver."""

    def build(tasks, name, bandwidth_gbps, estimator="window", **options):
        topology = registry.find("topology", name)
        cluster = Cluster(gpus=tasks.gpus, bandwidth_gbps=bandwidth_gbps)
        fabric = topology(topology.Options(**options)).build(cluster)
        network = Network.of(fabric, tasks)
        if fabric.circuits is None:
            return fabric, network, None
        scheduler = registry.find("scheduler", topology.scheduler)
        forecaster = registry.find("estimator", estimator)
        driver = ScheduledCircuits(
            control=fabric.circuits,
            scheduler=scheduler(scheduler.Options()),
            estimator=forecaster(forecaster.Options()).start(network, tasks),
            network=network,
            total_bytes=job_bytes(network, tasks),
        )
        return fabric, network, driver

    return build


@pytest.fixture(scope="session")
def timeline_of(scheduled):
    """timeline_of(tasks, name, bandwidth_gbps, ...): the timeline, and the network it ran on."""

    def run(tasks, name, bandwidth_gbps, **options):
        _, network, driver = scheduled(tasks, name, bandwidth_gbps, **options)
        return simulate(tasks, network, driver=driver), network

    return run
