"""Stages: contiguous, balanced, few bytes across; skips, sums and encoders."""

from __future__ import annotations

import numpy as np
import pytest

from sipml_core.errors import ConfigError
from sipml_core.model import Cluster, Phase
from sipml_core.partition import cut_stages, partition
from sipml_core.partition.stages import crossing_bytes
from sipml_core.testing.worked import ThreeMicroseconds, two_layers
from sipml_core.workloads import Gpt, ResNet50, Transformer

GRAPHS = {
    "gpt": lambda: Gpt(Gpt.Options(layers=12, hidden=64, heads=4, sequence=32)).graph(2, "mixed"),
    "transformer": lambda: Transformer(Transformer.Options()).graph(1, "mixed"),
    "resnet50": lambda: ResNet50(ResNet50.Options()).graph(1, "mixed"),
}


def times(graph):
    gpu = ThreeMicroseconds(ThreeMicroseconds.Options())
    cluster = Cluster(gpus=1, bandwidth_gbps=1.0, minimum_op_us=0.0, launch_us=0.0)
    return partition(graph, gpu, cluster, mp=1, tau_us=1.0).duration_us


def slowest(graph, time_us, stage, stages):
    counts = np.array([op.phase is not Phase.OPTIMIZER for op in graph.ops])
    return np.bincount(stage[counts], time_us[counts], stages).max()


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("stages", [1, 2, 4, 7])
def test_data_goes_forward_and_gradients_back(name, stages):
    """No forward op reads of a later stage, no backward op of an earlier one's gradients."""
    graph = GRAPHS[name]()
    stage = cut_stages(graph, times(graph), stages, 0.1)
    at = {op.name: s for op, s in zip(graph.ops, stage.tolist(), strict=True)}
    phase = {op.name: op.phase for op in graph.ops}
    assert set(at.values()) == set(range(stages))
    forward = [at[op.name] for op in graph.ops if op.phase is Phase.FORWARD]
    assert forward == sorted(forward)
    for op in graph.ops:
        for operand in op.reads:
            maker = graph.producer.get(operand.tensor)
            if maker and phase[maker] is op.phase is Phase.FORWARD:
                assert at[maker] <= at[op.name]
            if maker and phase[maker] is op.phase is Phase.BACKWARD:
                assert at[maker] >= at[op.name]


@pytest.mark.parametrize("name", GRAPHS)
def test_no_stage_is_slower_than_the_tolerance_allows(name):
    """Against the best balance; and more tolerance never sends more bytes."""
    graph = GRAPHS[name]()
    time_us, across = times(graph), crossing_bytes(graph)
    forward = [index for index, op in enumerate(graph.ops) if op.phase is Phase.FORWARD]
    best = slowest(graph, time_us, cut_stages(graph, time_us, 4), 4)
    sent = []
    for tolerance in (0.0, 0.02, 0.1, 0.5):
        stage = cut_stages(graph, time_us, 4, tolerance)
        # Sums of gradients that move with their parts take a little time with them.
        assert slowest(graph, time_us, stage, 4) <= best * (1 + tolerance) * 1.05
        sent.append(across[np.flatnonzero(np.diff(stage[forward])) + 1].sum())
    assert sent == sorted(sent, reverse=True)
    assert sent[-1] < sent[0]


def test_layers_are_not_cut_inside_attention():
    """With a tolerance every cut of a GPT is at the end of a layer: b s h elements forward and back."""
    graph = GRAPHS["gpt"]()
    stage = cut_stages(graph, times(graph), 4, 0.1)
    forward = [index for index, op in enumerate(graph.ops) if op.phase is Phase.FORWARD]
    first = np.flatnonzero(np.diff(stage[forward])) + 1
    assert [graph.ops[forward[at]].name.rpartition(".")[2] for at in first] == ["norm1"] * 3
    assert crossing_bytes(graph)[first].tolist() == [2 * 2 * 32 * 64 * 2] * 3


def test_equal_bytes_are_balanced():
    """Among cuts over which the same is sent, the best balance is taken, not any within the tolerance."""
    graph = Gpt(Gpt.Options(layers=16, hidden=64, heads=4, sequence=32, vocabulary=1000)).graph(2, "mixed")
    stage = cut_stages(graph, times(graph), 8, 0.5)
    forward = [(op.name, k) for op, k in zip(graph.ops, stage, strict=True) if op.phase is Phase.FORWARD]
    layers = [len({name.split(".")[0] for name, at in forward if at == k}) for k in range(8)]
    assert layers[1:-1] == [2] * 6


def test_sums_of_gradients_are_where_their_parts_are():
    """One gradient crosses each cut, not one for each reader of what crossed forward."""
    graph = GRAPHS["gpt"]()
    stage = cut_stages(graph, times(graph), 4, 0.1)
    at = {op.name: int(s) for op, s in zip(graph.ops, stage, strict=True)}
    crossing = [
        (graph.producer[operand.tensor], op.name)
        for op in graph.ops
        for operand in op.reads
        if op.phase is Phase.BACKWARD and operand.tensor in graph.producer
        if at[graph.producer[operand.tensor]] > at[op.name]
    ]
    assert len({maker for maker, _ in crossing}) == 3
    moved = [op.name for op in graph.ops if op.follows and at[op.name] != at[op.follows]]
    assert len(moved) == 3
    assert all(name.endswith(".sum") for name in moved)


def test_more_stages_than_ops():
    """Each stage has a forward op at least; the message says how many there are."""
    with pytest.raises(
        ConfigError, match=r"two layers has 2 forward ops, .* 2 stages at most, got 3; lower pp"
    ):
        cut_stages(two_layers(), np.ones(6), 3)
