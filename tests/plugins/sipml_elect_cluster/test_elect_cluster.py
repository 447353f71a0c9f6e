"""Elect-Cluster: fast inside a server, an uplink and a downlink between servers."""

import numpy as np
import pytest
from sipml_elect_cluster import ElectCluster

from sipml_core.errors import ConfigError
from sipml_core.model.cluster import Cluster
from sipml_core.plugin import installed


def fabric(gpus=16, gbps=1000.0, **options):
    return ElectCluster(ElectCluster.Options(**options)).build(Cluster(gpus=gpus, bandwidth_gbps=gbps))


def crossed(cluster, src, dst):
    """Names of the links one pair crosses, in order."""
    links = cluster.route(np.array([src], np.int32), np.array([dst], np.int32)).links[0]
    return [cluster.link_name(k) for k in links if k >= 0]


def capacity(cluster, name):
    names = [cluster.link_name(k) for k in range(cluster.fixed_links)]
    return cluster.link_gbps[names.index(name)]


def test_inside_a_server_only_the_ports_are_crossed():
    assert crossed(fabric(), 1, 7) == ["egress 1", "ingress 7"]
    assert crossed(fabric(), 9, 8) == ["egress 9", "ingress 8"]


def test_between_servers_uplink_and_downlink_are_crossed_in_between():
    assert crossed(fabric(), 1, 8) == ["egress 1", "uplink of server 0", "downlink of server 1", "ingress 8"]
    assert crossed(fabric(), 15, 0) == [
        "egress 15",
        "uplink of server 1",
        "downlink of server 0",
        "ingress 0",
    ]


def test_the_default_is_the_papers_server_of_8_with_400_gbps():
    cluster = fabric()
    assert cluster.hints.tiers == (("server", 8),)
    assert capacity(cluster, "uplink of server 1") == 400.0
    assert capacity(cluster, "downlink of server 0") == 400.0
    assert capacity(cluster, "egress 15") == 1000.0


def test_a_card_per_gpu_carries_only_its_own_gpu():
    """8 cards of 50 Gbps sum to 400, but one GPU alone gets 50."""
    cluster = fabric(uplink_per_gpu_gbps="50 Gbps")
    assert crossed(cluster, 1, 8) == ["egress 1", "uplink of GPU 1", "downlink of GPU 8", "ingress 8"]
    assert capacity(cluster, "uplink of GPU 1") == 50.0
    assert crossed(cluster, 1, 2) == ["egress 1", "ingress 2"]


def test_oversubscription_divides_what_the_servers_gpus_send_together():
    """8 GPUs at 1000 Gbps, 4:1: 2000 Gbps up; a last server of 4 GPUs: 1000."""
    cluster = fabric(gpus=12, oversubscription=4)
    assert capacity(cluster, "uplink of server 0") == 2000.0
    assert capacity(cluster, "downlink of server 1") == 1000.0
    assert any("2 Tbps per server" in note for note in cluster.words.notes)


def test_how_much_more_its_gpus_send_than_an_uplink_carries_is_said():
    """8 GPUs at 1000 Gbps over 400; not of one server, nor of uplinks that carry it all."""
    assert fabric(gpus=16).words.notes == ("oversubscription 20:1: 400 Gbps per server",)
    assert fabric(gpus=16, uplink_gbps=8000).words.notes == ()
    assert fabric(gpus=8).words.notes == ()


def test_an_uneven_last_server_is_allowed_and_reported():
    cluster = fabric(gpus=11)
    assert "the last server holds 3 GPUs, the others 8" in cluster.words.notes
    assert not any("last server" in note for note in fabric(gpus=16).words.notes)
    assert crossed(cluster, 10, 0)[1] == "uplink of server 1"


def test_one_server_is_elect_flat():
    cluster = fabric(gpus=5)
    assert crossed(cluster, 0, 4) == ["egress 0", "ingress 4"]


def test_latencies_inside_and_across():
    cluster = fabric(latency_us=1, across_latency_us="5 us")
    routes = cluster.route(np.array([0, 0], np.int32), np.array([1, 9], np.int32))
    assert routes.latency_us.tolist() == [1.0, 5.0]


@pytest.mark.parametrize(
    "options",
    [
        {"uplink_gbps": 400, "uplink_per_gpu_gbps": 50},
        {"uplink_gbps": 400, "oversubscription": 2},
        {"uplink_per_gpu_gbps": 50, "oversubscription": 2},
    ],
)
def test_two_ways_to_size_one_uplink_are_refused_and_named(options):
    with pytest.raises(ConfigError, match=" and ".join(options)):
        ElectCluster.Options(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"server_gpus": 0},
        {"uplink_gbps": 0},
        {"uplink_gbps": "fast"},
        {"oversubscription": -1},
        {"latency_us": -1},
    ],
)
def test_impossible_values_are_refused(options):
    with pytest.raises(ConfigError):
        ElectCluster.Options(**options)


def test_the_plugin_offers_it_through_the_hook():
    assert installed("topology", "elect-cluster") is ElectCluster
