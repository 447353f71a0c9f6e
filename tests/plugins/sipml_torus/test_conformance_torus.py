"""The suite that any stranger's topology passes."""

from sipml_torus import SipTorus, Torus

from sipml_core.testing import TopologyConformance


class TestSprayedTorus(TopologyConformance):
    topology = Torus
    sizes = (4, 7, 24)


class TestHashedTorus(TopologyConformance):
    topology = Torus
    sizes = (4, 24)
    options = {"routing": "hash", "dimensions": 2, "hop_latency_us": 0.5}


class TestCubes(TopologyConformance):
    topology = SipTorus
    sizes = (8, 16)
    options = {"cube": 2}
    training_gpus = 8


class TestTwistedCubes(TopologyConformance):
    topology = SipTorus
    sizes = (16,)
    options = {"cube": 2, "shape": (2, 2, 4), "twisted": True}
    training_gpus = 16
