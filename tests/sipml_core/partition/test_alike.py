"""Equal layers are timed once, but not where a GPU goes by the names of ops."""

import numpy as np
import pytest

from sipml_core.model.cluster import Cluster
from sipml_core.model.prices import Prices
from sipml_core.partition.alike import AlikeOps
from sipml_core.partition.partitioning import partition
from sipml_core.partition.splits import choose_splits
from sipml_core.testing.worked import ThreeMicroseconds, two_layers
from sipml_core.workloads import Gpt

CLUSTER = Cluster(gpus=4, bandwidth_gbps=100.0, minimum_op_us=0.0, launch_us=0.0)


def gpt(layers):
    return Gpt(Gpt.Options(layers=layers, hidden=16, heads=2, sequence=8, vocabulary=16)).graph(4, "mixed")


class Counting(ThreeMicroseconds):
    """Counts what it is asked."""

    names_matter = False
    asked = 0

    def op_time_us(self, work):
        self.asked += 1
        return super().op_time_us(work)


class SlowSecondLayer(ThreeMicroseconds):
    """Knows layers by name: those of the second take twice as long."""

    def op_time_us(self, work):
        return super().op_time_us(work) * (2 if self.second(work.op) else 1)

    @staticmethod
    def second(name):
        return "1" in name


def test_ops_that_differ_in_names_alone_are_alike():
    """Layers 1 and 2 of three; f and g of the worked example run over other dimensions."""
    graph = gpt(3)
    alike = AlikeOps(graph)
    assert len({alike.number(op) for op in graph.ops}) < len(graph.ops) / 2
    small = two_layers()
    numbers = [AlikeOps(small).number(op) for op in small.ops]
    assert numbers == [0, 1, 2, 3, 4, 5]


def test_more_equal_layers_ask_the_gpu_nothing_more():
    asked = []
    for layers in (3, 6):
        gpu = Counting(Counting.Options())
        partition(gpt(layers), gpu, CLUSTER, mp=4, tau_us=1.0)
        asked.append(gpu.asked)
    assert asked[0] == asked[1] > 0


@pytest.mark.parametrize("mp", [1, 4])
def test_a_gpu_that_goes_by_names_is_asked_for_every_op(mp):
    """What is slow by name is slow in the sub-ops, and in what layouts are chosen by."""
    graph, gpu = gpt(3), SlowSecondLayer(SlowSecondLayer.Options())
    slow = np.array([gpu.second(op.name) for op in graph.ops])
    assert 0 < slow.sum() < len(slow) / 2
    balanced = partition(graph, gpu, CLUSTER, mp=mp, tau_us=1e9)
    assert balanced.parts.tolist() == [1] * len(graph.ops)
    assert (balanced.duration_us == np.where(slow, 6.0, 3.0)).all()
    layout = choose_splits(graph, gpu, CLUSTER, mp=mp, tau_us=1e9, dp=1, prices=Prices.flat(100.0))
    followers = {op.name: 0.0 for op in graph.ops if op.follows is None}
    for op in graph.ops:
        leader = op
        while leader.follows is not None:
            leader = graph.op[leader.follows]
        followers[leader.name] += 6.0 if gpu.second(op.name) else 3.0
    assert {c.op: c.compute_us for c in layout.choices} == pytest.approx(followers)
