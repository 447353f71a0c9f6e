"""The suite that any stranger's topology passes."""

from sipml_elect_cluster import ElectCluster

from sipml_core.testing import TopologyConformance


class TestElectCluster(TopologyConformance):
    topology = ElectCluster


class TestSmallServers(TopologyConformance):
    topology = ElectCluster
    options = {"server_gpus": 2, "oversubscription": 4.0}
