"""Elect-Flat: ports are the only limits."""

import numpy as np
import pluggy
import pytest
import sipml_elect_flat
from sipml_elect_flat import ElectFlat

from sipml_core.errors import ConfigError
from sipml_core.model import Fabric, UnsharedFabric
from sipml_core.model.cluster import Cluster
from sipml_core.plugin import hookspecs


def fabric(gpus=4, gbps=100.0, **options):
    return ElectFlat(ElectFlat.Options(**options)).build(Cluster(gpus=gpus, bandwidth_gbps=gbps))


def test_every_pair_crosses_the_senders_egress_and_the_receivers_ingress_only():
    """No other link exists: a pattern is limited by ports alone."""
    flat = fabric()
    src, dst = np.array([0, 3, 1], np.int32), np.array([1, 0, 2], np.int32)
    routes = flat.route(src, dst)
    assert routes.links.tolist() == [[0, 4 + 1], [3, 4 + 0], [1, 4 + 2]]
    assert [flat.link_name(k) for k in (0, 3, 4, 7)] == ["egress 0", "egress 3", "ingress 0", "ingress 3"]


def test_every_port_carries_the_bandwidth_of_a_gpu():
    assert fabric(gbps=250.0).link_gbps.tolist() == [250.0] * 8


def test_no_circuit_no_degree_and_no_reach_limits_it():
    flat = fabric()
    assert (flat.circuits, flat.hints.degree, flat.hints.reach_hops, flat.hints.tiers) == (
        None,
        None,
        None,
        (),
    )


def test_latency_is_paid_once_by_every_route_and_accepts_units():
    routes = fabric(latency_us="500 ns").route(np.array([0, 1], np.int32), np.array([1, 3], np.int32))
    assert routes.latency_us.tolist() == [0.5, 0.5]


def test_sharing_reaches_the_fabric_and_a_mistyped_one_is_refused_with_the_nearest():
    assert type(fabric()) is Fabric
    assert type(fabric(sharing="bound")) is UnsharedFabric
    with pytest.raises(ConfigError, match="did you mean 'bound'"):
        fabric(sharing="bounds")


@pytest.mark.parametrize("latency", [-1, float("nan"), "fast"])
def test_impossible_latencies_are_refused(latency):
    with pytest.raises(ConfigError):
        ElectFlat.Options(latency_us=latency)


def test_one_gpu_is_a_network_without_pairs():
    assert fabric(gpus=1).fixed_links == 2


def test_the_plugin_offers_it_through_the_hook():
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(sipml_elect_flat)
    manager.check_pending()
    assert manager.hook.sipml_topologies() == [[ElectFlat]]
