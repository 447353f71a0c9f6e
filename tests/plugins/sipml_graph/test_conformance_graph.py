"""The suite that any stranger's topology passes, on a file with 24 GPUs under three switches."""

import pytest
from sipml_graph import Graph

from sipml_core.testing import TopologyConformance


class TestGraph(TopologyConformance):
    topology = Graph
    sizes = (24,)
    training_gpus = 24

    @pytest.fixture(autouse=True)
    def _file(self, tmp_path):
        path = tmp_path / "net.csv"
        lines = [f"gpu{i},leaf{i // 8},,0.5" for i in range(24)]
        lines += [f"leaf{i},spine{j},1600,1" for i in range(3) for j in range(2)]
        path.write_text("from,to,gbps,latency_us\n" + "\n".join(lines) + "\n")
        type(self).options = {"file": str(path)}


class TestPlanes(TopologyConformance):
    """Four planes of a quarter of the bandwidth, sprayed."""

    topology = Graph
    sizes = (7,)
    training_gpus = 7

    @pytest.fixture(autouse=True)
    def _file(self, tmp_path):
        path = tmp_path / "net.csv"
        lines = [f"gpu{i},plane{k},200,0.5" for i in range(7) for k in range(4)]
        path.write_text("from,to,gbps,latency_us\n" + "\n".join(lines) + "\n")
        type(self).options = {"file": str(path)}
