"""Fabrics of bundled plugins by name, what a pair crosses, and how long transfers take."""

import numpy as np
import pytest

from sipml_core.model import Cluster
from sipml_core.testing.jobs import run_transfers, transfers_only


@pytest.fixture(scope="session")
def build(registry):
    """build(name, gpus, gbps, **options): a fabric."""

    def built(name, gpus=16, gbps=800.0, **options):
        topology = registry.find("topology", name)
        return topology(topology.Options(**options)).build(Cluster(gpus=gpus, bandwidth_gbps=gbps))

    return built


@pytest.fixture(scope="session")
def crossed():
    """crossed(fabric, src, dst): the part of the bytes on each link that a pair crosses, by name."""

    def links(fabric, src, dst):
        flat = fabric.route(np.array([src], np.int32), np.array([dst], np.int32)).flat()
        return {
            fabric.link_name(int(k)): round(float(w), 6) for k, w in zip(flat.links, flat.weight, strict=True)
        }

    return links


@pytest.fixture(scope="session")
def time_us(registry):
    """time_us(fabric, {(src, dst): bytes}, scheduler=None): until the last byte has arrived."""

    def run(fabric, sizes, scheduler=None):
        src, dst = np.array(list(sizes), np.int32).T
        tasks = transfers_only(fabric.gpus, src, dst, np.array(list(sizes.values()), float))
        kind = registry.find("scheduler", scheduler) if scheduler else None
        return run_transfers(fabric, kind and kind(kind.Options()), tasks)[1].total_us

    return run
