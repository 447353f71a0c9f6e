"""The suite that any stranger's topology passes."""

from sipml_electrical import Dgx, Dragonfly, FatTree

from sipml_core.testing import TopologyConformance


class TestHashedTree(TopologyConformance):
    topology = FatTree


class TestSprayedLeavesAndSpines(TopologyConformance):
    topology = FatTree
    options = {"layers": 2, "routing": "spray", "oversubscription": 3.0}


class TestRailsOfServers(TopologyConformance):
    topology = FatTree
    options = {
        "server_gpus": 4, "card_gbps": 100.0, "wiring": "rails", "through_server": True, "flows": 3,
        "hop_latency_us": 0.5,
    }  # fmt: skip


class TestCubeMesh(TopologyConformance):
    topology = Dgx
    options = {"generation": "v100"}


class TestSwitchedServers(TopologyConformance):
    topology = Dgx
    options = {"across_latency_us": 2.0}


class TestMinimalDragonfly(TopologyConformance):
    topology = Dragonfly


class TestSprayedValiantDragonfly(TopologyConformance):
    topology = Dragonfly
    options = {"routing": "valiant", "spread": "spray", "global_latency_us": 1.0}
