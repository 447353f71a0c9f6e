"""The chosen split dimensions: costs by hand, the known good layouts, and the fixed rules."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sipml_core.cases import op_layout
from sipml_core.errors import ConfigError
from sipml_core.model.cluster import Cluster
from sipml_core.model.opgraph import Split
from sipml_core.model.plan import Plan
from sipml_core.model.prices import Prices
from sipml_core.partition.costs import Budget, split_costs
from sipml_core.partition.layouts import FIXED_LAYOUTS, fixed_layout, leader_index
from sipml_core.partition.partitioning import partition
from sipml_core.partition.slices import SliceTimes
from sipml_core.partition.splits import choose_splits, explain
from sipml_core.plugin.interfaces import GpuModel, NoOptions
from sipml_core.workloads.backward import training_step
from sipml_core.workloads.builder import GraphBuilder
from sipml_core.workloads.gpt import Gpt
from sipml_core.workloads.layers import dropout_add, feed_forward, layer_norm
from sipml_core.workloads.resnet import ResNet50
from sipml_core.workloads.transformer import Transformer


class Clock(GpuModel):
    """A GPU of 10 TFLOP/s and 1 TB/s."""

    name = "clock"
    summary = "roofline without any efficiency"
    memory_bytes = 1e15

    def op_time_us(self, work):
        return max(work.flops / 1e7, work.memory_bytes / 1e6)


class Small(Clock):
    """The same with 40 MB of memory."""

    memory_bytes = 40e6


GPU, SMALL = Clock(NoOptions()), Small(NoOptions())
#: Nothing but the roofline: slices are as short as their share of the work.
CLUSTER = Cluster(gpus=64, bandwidth_gbps=1000.0, minimum_op_us=0.0, launch_us=0.0)


def mlp(samples, tokens, width, hidden):
    """A residual MLP between two token-wise layers, and a loss."""
    b = GraphBuilder("mlp", samples, "fp32")
    x = layer_norm(b, "first", b.input("x", (samples, tokens, width)))
    y = dropout_add(b, "residual", feed_forward(b, "mlp", x, hidden, "relu"), x)
    z = layer_norm(b, "last", y)
    b.op(
        "loss", "loss", {"n": samples, "s": tokens, "h": width}, {"n": Split.SAMPLE, "s": Split.SPATIAL},
        flops=1.0, reads={z: "n s h"}, writes={"loss.y": "n s"}, kept={"loss.y": 4},
    )  # fmt: skip
    return training_step(b)


def costs_of(graph, mp=4, tau_us=0.001, dp=2, gbps=8.0, **more):
    budget = Budget(mp=mp, tau_us=tau_us, dp=dp, prices=Prices.flat(gbps), **more)
    return split_costs(graph, SliceTimes(graph, GPU, CLUSTER), budget)


def choose(graph, gpu=GPU, mp=8, dp=1, gbps=1000.0, tau_us=0.001):
    return choose_splits(graph, gpu, CLUSTER, mp=mp, tau_us=tau_us, dp=dp, prices=Prices.flat(gbps))


def splits_of(graph, layout):
    return {name: graph.op[name].splits.get(dim) for name, dim in layout.dims.items()}


def busiest_port_bytes(balanced, mp):
    """Traffic by the edges of a balanced graph, each op of a leader counted for its largest need.

    Worked from the edges rather than from the cost tables: part p of P is on device floor(p mp / P).
    """
    graph = balanced.graph
    op = balanced.subop_op
    device = (np.arange(balanced.subops) - balanced.first[op]) * mp // balanced.parts[op]
    volume = (balanced.edge_hi - balanced.edge_lo).prod(axis=1)
    element_bytes = np.array([t.element_bytes for t in graph.tensors])
    leader = leader_index(graph)
    need = {}
    for tensor, reader in {(t, op[d]) for t, d in zip(balanced.edge_tensor, balanced.edge_dst, strict=True)}:
        mine = (balanced.edge_tensor == tensor) & (op[balanced.edge_dst] == reader)
        src, dst = device[balanced.edge_src[mine]], device[balanced.edge_dst[mine]]
        size = np.where(src != dst, volume[mine] * element_bytes[tensor], 0)
        port = max(np.bincount(src, size).max(), np.bincount(dst, size).max())
        key = tensor, leader[reader]
        need[key] = max(need.get(key, 0.0), port)
    return sum(need.values())


@settings(deadline=None, max_examples=40)
@given(data=st.data(), samples=st.integers(1, 5))
def test_traffic_is_that_of_the_balanced_graph(data, samples):
    """For any layout, the tables sum to the bytes of the busiest ports along the graph's edges."""
    graph = mlp(samples, 6, 64, 96)
    costs = costs_of(graph)
    chosen = [data.draw(st.integers(0, len(v.cuts) - 1)) for v in costs.variables]
    cuts = {v.op.name: v.cuts[c].dim for v, c in zip(costs.variables, chosen, strict=True)}
    total_us = sum(t[chosen[u], chosen[v]] for (u, v), t in costs.pairs.items())
    total_us += sum(v.traffic_us[c] for v, c in zip(costs.variables, chosen, strict=True))
    balanced = partition(graph, GPU, CLUSTER, mp=4, tau_us=0.001, layout=cuts)
    assert total_us * 1000 == pytest.approx(busiest_port_bytes(balanced, 4))  # 8 Gbps: 1000 bytes per us


def test_compute_is_the_longest_slice_of_the_op_and_its_followers():
    """Durations of the balanced graph, over whole and cut ops alike."""
    graph = mlp(4, 8, 64, 128)
    costs = costs_of(graph)
    leader = leader_index(graph)
    for variable in costs.variables:
        for cut, compute_us in zip(variable.cuts, variable.compute_us, strict=True):
            balanced = partition(graph, GPU, CLUSTER, mp=4, tau_us=0.001, layout={variable.op.name: cut.dim})
            longest = np.maximum.reduceat(balanced.duration_us, balanced.first[:-1])
            followers = [graph.ops[leader[i]].name == variable.op.name for i in range(len(graph.ops))]
            assert compute_us == pytest.approx(longest[followers].sum())


def test_synchronisation_of_sharded_and_replicated_parameters():
    """fc1 has 64 x 128 weights and 128 biases of 4 bytes; 2 replicas, 4 devices each, 1000 bytes per us.

    Whole: 2 holders, 2 * 1/2 of 33280 bytes. Cut by sample: 8 holders, 2 * 7/8 of it.
    Cut by column: a quarter each, 2 holders. Cut by row: weights a quarter, all the bias in each
    of 4 parts: 2 * 1/2 * 8192 and 2 * 7/8 * 512.
    """
    costs = costs_of(mlp(4, 8, 64, 128))
    fc1 = next(v for v in costs.variables if v.op.name == "mlp.fc1")
    sync_us = {cut.dim: us for cut, us in zip(fc1.cuts, fc1.sync_us, strict=True)}
    expected = {None: 33.280, "n": 58.240, "s": 58.240, "o": 8.320, "i": 8.192 + 0.896}
    assert sync_us == pytest.approx(expected)


def test_larger_gradients_take_longer_and_more_memory():
    """Of twice the bytes they are synchronised for twice the time; of 4 + 4 + 8 bytes of state a parameter in
    fp32 the gradient's 4 become 8, which is 20 / 16 of it. Nothing else changes."""
    graph = mlp(4, 8, 64, 128)
    usual, larger = (costs_of(graph, recompute=True, gradient_bytes=size).variables for size in (None, 8))
    for one, other in zip(usual, larger, strict=True):
        assert other.sync_us == pytest.approx(2 * one.sync_us)
        assert other.memory_bytes == pytest.approx(one.memory_bytes * 20 / 16)
        assert other.compute_us.tolist() == one.compute_us.tolist()
        assert other.traffic_us.tolist() == one.traffic_us.tolist()
    assert any(variable.sync_us.any() for variable in usual)


def test_fp32_gradients_of_a_plan_are_those_of_its_layout():
    """Mixed precision, one device a group, so that nothing can be cut: 4 bytes are sent in place of 2."""
    graph = Gpt(Gpt.Options(layers=1, hidden=64, heads=4, sequence=32, vocabulary=100)).graph(2, "mixed")
    sums = []
    for fp32 in (False, True):
        plan = Plan(mp=1, dp=4, global_batch=8, fp32_gradients=fp32)
        layout = op_layout(graph, "auto", GPU, CLUSTER, plan, Prices.flat(100.0))
        sums.append(sum(choice.sync_us for choice in layout.choices))
    assert sums[1] == pytest.approx(2 * sums[0])
    assert sums[0] > 0


def test_column_then_row_where_weights_outweigh_the_batch():
    """Few tokens, large weights, several replicas: the MLP becomes column, column, row.

    Between the products nothing travels; forward and backward one all-reduce each, as
    reduce-scatter and all-gather around the token-wise ops: 4 exchanges of (n - 1) / n * S.
    """
    graph = mlp(8, 16, 1024, 4096)
    layout = choose(graph, dp=16)
    kinds = splits_of(graph, layout)
    assert kinds["mlp.fc1"] is kinds["mlp.fc1.relu"] is Split.COLUMN
    assert kinds["mlp.fc2"] is Split.ROW
    traffic = {choice.op: choice.traffic_us for choice in layout.choices}
    assert traffic["mlp.fc1.relu"] == 0
    size = 8 * 16 * 1024 * 4
    exchange_us = 7 / 8 * size / (1000 * 125)
    assert traffic["mlp.fc1"] + traffic["mlp.fc2"] == pytest.approx(4 * exchange_us, rel=0.05)


def test_sample_where_the_batch_outweighs_the_weights():
    """Many tokens, small weights, slow network: nothing but gradients should travel."""
    graph = mlp(512, 16, 64, 64)
    assert set(splits_of(graph, choose(graph, gbps=10.0)).values()) == {Split.SAMPLE}


def test_heads_for_attention():
    """GPT layers with a small batch: heads through attention, then row, column, row."""
    graph = Gpt(Gpt.Options(layers=2, hidden=2048, heads=16, sequence=512, vocabulary=1000)).graph(1, "mixed")
    kinds = splits_of(graph, choose(graph, dp=8))
    for layer in ("layer0", "layer1"):
        for op in ("qkv", "scores", "softmax", "context"):
            assert kinds[f"{layer}.attention.{op}"] is Split.HEAD, op
        assert kinds[f"{layer}.attention.out"] is Split.ROW
        assert kinds[f"{layer}.mlp.fc1"] is Split.COLUMN
        assert kinds[f"{layer}.mlp.fc2"] is Split.ROW


@pytest.mark.parametrize(("samples", "split"), [(64, {Split.SAMPLE, Split.SPATIAL}), (1, {Split.SPATIAL})])
def test_early_convolutions_stay_local(samples, split):
    """Large images, few channels: along the batch or the image, never along channels."""
    graph = ResNet50(ResNet50.Options()).graph(samples, "mixed")
    kinds = splits_of(graph, choose(graph, dp=8))
    early = {kinds[name] for name in kinds if name.startswith(("stem.", "stage1."))}
    assert early <= split


def test_memory_shards_what_does_not_fit():
    """8 MB of weights with gradients and Adam: 16 bytes a parameter, 32 MB whole and 4 MB in 8 parts.

    With room to spare the batch is cut and the weights repeated; 40 MB hold no two such layers.
    """
    graph = mlp(64, 64, 512, 4096)
    roomy, tight = choose(graph, gbps=50.0), choose(graph, SMALL, gbps=50.0)
    assert splits_of(graph, roomy)["mlp.fc1"] is Split.SAMPLE
    assert {splits_of(graph, tight)[f"mlp.fc{i}"] for i in (1, 2)} <= {Split.COLUMN, Split.ROW}


def test_no_single_change_improves_the_choice():
    """Every recorded runner-up costs at least as much, at the same prices."""
    layout = choose(mlp(8, 16, 256, 1024), dp=4, gbps=100.0)
    assert all(c.runner_up_extra_us is None or c.runner_up_extra_us >= -1e-9 for c in layout.choices)


def test_one_device_cuts_nothing():
    """mp = 1."""
    graph = mlp(4, 8, 64, 64)
    assert set(choose(graph, mp=1).dims.values()) == {None}


def test_the_same_question_has_the_same_answer():
    """Deterministic, reasons included."""
    assert choose(mlp(8, 16, 256, 1024)) == choose(mlp(8, 16, 256, 1024))


def test_explain_has_a_row_for_each_choice():
    """Op, cut, what the split is called, costs and the runner-up."""
    graph = mlp(8, 16, 1024, 4096)
    rows = {row["op"]: row for row in explain(choose(graph, dp=16))}
    assert rows["mlp.fc2"]["dim"] == "i"
    assert rows["mlp.fc2"]["split"] == "row"
    assert rows["mlp.fc2"]["parts"] == 8
    assert rows["mlp.fc2"]["runner_up"]
    assert {row["op"] for row in explain(fixed_layout(graph, "sample"))} == set(rows)


def test_every_layout_can_be_partitioned():
    """Each leading op gets a dimension it may be cut along."""
    graph = mlp(8, 16, 64, 128)
    for layout in (*(fixed_layout(graph, name) for name in FIXED_LAYOUTS), choose(graph, gbps=1e6)):
        assert set(layout.dims) == {op.name for op in graph.ops if op.follows is None}
        assert partition(graph, GPU, CLUSTER, mp=4, tau_us=0.001, layout=layout).subops > len(graph.ops)


def test_the_sample_rule():
    """The batch where there is one, the sequence where the batch is one sample."""
    assert set(fixed_layout(mlp(8, 16, 64, 64), "sample").dims.values()) == {"n"}
    assert set(fixed_layout(mlp(1, 16, 64, 64), "sample").dims.values()) == {"s"}


def test_the_tensor_rule():
    """Megatron: heads, row; column, row; token-wise ops along the batch."""
    graph = Gpt(Gpt.Options(layers=1, hidden=64, heads=4, sequence=8, vocabulary=50)).graph(2, "mixed")
    kinds = splits_of(graph, fixed_layout(graph, "tensor"))
    attention = {op: kinds[f"layer0.attention.{op}"] for op in ("qkv", "scores", "softmax", "context", "out")}
    assert list(attention.values()) == [Split.HEAD] * 4 + [Split.ROW]
    assert [kinds[f"layer0.mlp.{op}"] for op in ("fc1", "fc1.gelu", "fc2")] == [
        Split.COLUMN,
        Split.COLUMN,
        Split.ROW,
    ]
    assert kinds["layer0.norm1"] is kinds["layer0.residual1"] is Split.SAMPLE


def small_gpt(samples):
    options = Gpt.Options(layers=1, hidden=64, heads=4, sequence=8, vocabulary=50)
    return Gpt(options).graph(samples, "mixed")


@pytest.mark.parametrize(("samples", "dim"), [(2, "s"), (16, "n")])
def test_the_megatron_rule(samples, dim):
    """The tensor rule for matrix products and heads, the vocabulary for the lookup; all else is duplicated,
    cut along the longer of batch and sequence, so that every device has a part to send."""
    graph = small_gpt(samples)
    tensor, megatron = (fixed_layout(graph, name) for name in ("tensor", "megatron"))
    between = {f"layer0.{op}" for op in ("norm1", "residual1", "norm2", "residual2")}
    between |= {"positions", "final_norm"}
    assert megatron.duplicated == between
    assert not tensor.duplicated
    expected = {op: dim if op in between else cut for op, cut in tensor.dims.items()}
    assert megatron.dims == {**expected, "embedding": "v"}


def test_megatron_cuts_every_attention_along_heads():
    """Also the first after an embedding, and the decoder's attention to the encoder."""
    options = Transformer.Options(layers=2, hidden=64, heads=4, feed_forward=96, vocabulary=50)
    graph = Transformer(options).graph(2, "mixed")
    layout = fixed_layout(graph, "megatron")
    heads = {op for op, kind in splits_of(graph, layout).items() if kind is Split.HEAD}
    # scores, softmax, dropout, context of 3 attentions in 2 layers; qkv of 4 of them, q and kv of the others
    assert len(heads) == 6 * 4 + 4 * 1 + 2 * 2
    assert not heads & layout.duplicated


def test_a_product_is_never_duplicated():
    """Its parameters are worth dividing: where it has no columns, along the features it sums over. An op
    without parameters that nothing can cut is duplicated, whole."""
    b = GraphBuilder("row", 1, "fp32")
    w = b.parameter("w", (8,))
    b.op(
        "dot", "matmul", {"n": 1, "i": 8}, {"n": Split.SAMPLE, "i": Split.ROW}, flops=16.0,
        reads={b.input("x", (1, 8)): "n i", w: "i"}, writes={"y": "n"}, factors=("x", w),
    )  # fmt: skip
    b.op("loss", "loss", {"n": 1}, {"n": Split.SAMPLE}, flops=1.0, reads={"y": "n"}, writes={"z": "n"},
         kept={"z": 4})  # fmt: skip
    layout = fixed_layout(training_step(b), "megatron")
    assert layout.dims == {"dot": "i", "loss": None}
    assert layout.duplicated == {"loss"}


def test_explain_says_which_ops_are_duplicated():
    rows = {row["op"]: row["duplicated"] for row in explain(fixed_layout(small_gpt(2), "megatron"))}
    assert rows["layer0.norm1"] is True
    assert rows["layer0.mlp.fc1"] is False


def test_bad_arguments_are_refused():
    """Unknown names and numbers that are not positive."""
    graph = mlp(2, 2, 4, 4)
    with pytest.raises(ConfigError, match="no layout 'tenser'; did you mean 'tensor'"):
        fixed_layout(graph, "tenser")
    for bad in ({"mp": 0}, {"dp": 0}, {"gbps": 0.0}, {"gbps": float("nan")}, {"tau_us": -1.0}):
        with pytest.raises(ConfigError, match=f"{next(iter(bad))} must be positive"):
            choose(graph, **bad)


def test_traffic_costs_the_groups_price_and_synchronisation_the_replicas():
    """Half the bandwidth of one kind of pair doubles that kind of cost, and leaves the other."""
    graph = mlp(8, 16, 256, 1024)

    def costs(group_gbps, replica_gbps):
        prices = Prices(group_gbps=group_gbps, replica_gbps=replica_gbps)
        budget = Budget(mp=4, tau_us=0.001, dp=2, prices=prices)
        made = split_costs(graph, SliceTimes(graph, GPU, CLUSTER), budget)
        traffic = sum(table.sum() for table in made.pairs.values())
        return traffic, sum(variable.sync_us.sum() for variable in made.variables)

    traffic, sync = costs(8.0, 8.0)
    assert min(traffic, sync) > 0
    assert costs(4.0, 8.0) == pytest.approx((2 * traffic, sync), rel=1e-12)
    assert costs(8.0, 4.0) == pytest.approx((traffic, 2 * sync), rel=1e-12)
