"""What a topology builds is held to what the experiment says."""

import numpy as np
import pytest

from sipml_core.cases.steps import built_fabric
from sipml_core.errors import PluginError
from sipml_core.model import Cluster, Fabric, Routes
from sipml_core.plugin import Topology


class Miscounts(Topology):
    """A switch with one GPU more or less."""

    name = "miscounts"
    summary = "a switch of another size"
    more = 0

    def build(self, cluster):
        gpus = cluster.gpus + self.more

        def route(src, dst):
            return Routes(links=np.column_stack([src, gpus + dst]), latency_us=np.zeros(len(src)))

        return Fabric(gpus=gpus, link_gbps=np.full(2 * gpus, cluster.bandwidth_gbps), route=route)


@pytest.mark.parametrize("more", [-1, 1])
def test_a_fabric_of_another_number_of_gpus_is_refused(more):
    topology = type("Wrong", (Miscounts,), {"more": more})(Miscounts.Options())
    with pytest.raises(PluginError, match=f"miscounts'.* joins {4 + more} GPUs, but cluster.gpus is 4"):
        built_fabric(topology, Cluster(gpus=4, bandwidth_gbps=100.0))


def test_a_fabric_of_as_many_gpus_as_the_cluster_is_not():
    assert built_fabric(Miscounts(Miscounts.Options()), Cluster(gpus=4, bandwidth_gbps=100.0)).gpus == 4
