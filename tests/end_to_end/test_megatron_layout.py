"""Layout "megatron" against "tensor": the same traffic between products, all of the work between them."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import sipml_core as sipml
from sipml_core.cases.candidates import search_candidates
from sipml_core.cases.running import run_experiment
from sipml_core.cli.main import main
from sipml_core.experiment.reading import read_experiment
from sipml_core.lowering.grouptemplate import GroupTemplate, traffic_bytes
from sipml_core.lowering.memory import memory_per_gpu
from sipml_core.lowering.recompute import checkpoints
from sipml_core.lowering.wholejob import lower
from sipml_core.model.balanced import Placement, PlacementLimits
from sipml_core.model.cluster import Cluster
from sipml_core.model.opgraph import Phase, Split
from sipml_core.model.plan import Plan
from sipml_core.partition.layouts import fixed_layout
from sipml_core.partition.partitioning import partition
from sipml_core.plugin.interfaces import GpuModel, NoOptions
from sipml_core.workloads.backward import training_step
from sipml_core.workloads.builder import GraphBuilder
from sipml_core.workloads.gpt import Gpt
from sipml_core.workloads.layers import dropout_add, feed_forward, layer_norm

ROOT = Path(__file__).resolve().parents[2]
SEQUENCE, HIDDEN = 8, 64
GPT = {"name": "gpt", "layers": 2, "hidden": 128, "heads": 4, "sequence": 32, "vocabulary": 512}


class Clock(GpuModel):
    """A GPU on which a slice takes its share of the op exactly, if it is cut along tokens or features."""

    name = "clock"
    summary = "1 FLOP = 1 us, one element of a lookup as well"
    memory_bytes = 1e12

    def op_time_us(self, work):
        return work.flops or work.output_elements


def mlp(samples):
    """norm, column, row, residual sum, norm, loss: one all-reduce each way, S bytes of fp32 tokens."""
    b = GraphBuilder("mlp", samples, "fp32")
    x = layer_norm(b, "norm1", b.input("x", (samples, SEQUENCE, HIDDEN)))
    y = dropout_add(b, "residual", feed_forward(b, "mlp", x, 2 * HIDDEN, "relu"), x)
    z = layer_norm(b, "norm2", y)
    b.op(
        "loss", "loss", {"n": samples, "s": SEQUENCE, "h": HIDDEN}, {"n": Split.SAMPLE, "s": Split.SPATIAL},
        flops=1000.0, reads={z: "n s h"}, writes={"loss.y": "n s"}, kept={"loss.y": 4},
    )  # fmt: skip
    return training_step(b)


def placed(graph, layout, *, mp):
    """One group under a fixed layout, part p of every op on device p."""
    cluster = Cluster(gpus=mp, bandwidth_gbps=8.0, launch_us=0.0, minimum_op_us=0.0)
    balanced = partition(
        graph, Clock(NoOptions()), cluster, mp=mp, tau_us=1e-3, layout=fixed_layout(graph, layout)
    )
    part = np.arange(balanced.subops) - balanced.first[balanced.subop_op]
    return Placement(graph=balanced, limits=PlacementLimits(devices=mp), device=part)


def both(graph, mp):
    """Placements under "tensor" and "megatron"."""
    return [placed(graph, layout, mp=mp) for layout in ("tensor", "megatron")]


def plan_of(mp, dp=1, **kwargs):
    return Plan(mp=mp, dp=dp, global_batch=4 * dp, **kwargs)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("mp", [2, 4])
def test_the_work_of_a_group_grows_by_what_is_duplicated(mp, recompute):
    """By (mp - 1) times the whole time of these ops, forward, backward and second runs; optimizers are
    repeated in either layout."""
    graph, plan = mlp(4), plan_of(mp, recompute=recompute)
    cluster = Cluster(gpus=mp, bandwidth_gbps=8.0)
    tensor, megatron = (lower(placement, plan, cluster).duration_us.sum() for placement in both(graph, mp))
    again = checkpoints(graph, recompute=recompute).runs_again
    whole_us = sum(
        op.flops * (1 + runs_twice)
        for op, runs_twice in zip(graph.ops, again, strict=True)
        if (op.follows or op.name) in ("norm1", "residual", "norm2", "loss")
        if op.phase is not Phase.OPTIMIZER
    )
    assert megatron - tensor == pytest.approx((mp - 1) * whole_us)


@pytest.mark.parametrize(("mp", "samples"), [(2, 4), (4, 4), (4, 2), (4, 1)])
def test_activations_put_the_same_bytes_on_the_network(mp, samples):
    """Two all-reduces of S bytes, each a reduce-scatter and an all-gather of (mp - 1) S."""
    size = 4.0 * samples * SEQUENCE * HIDDEN
    for placement in both(mlp(samples), mp):
        assert traffic_bytes(placement, plan_of(mp)).activations == 4 * (mp - 1) * size


@pytest.mark.parametrize("recompute", [False, True])
def test_second_runs_send_the_same_bytes_too(recompute):
    tensor, megatron = (
        traffic_bytes(placement, plan_of(4, recompute=recompute)).activations for placement in both(mlp(4), 4)
    )
    assert megatron == tensor


@pytest.mark.parametrize("dp", [1, 3])
@pytest.mark.parametrize("mp", [2, 4])
def test_gradients_of_duplicated_ops_stay_out_of_the_group(mp, dp):
    """M bytes on mp x dp GPUs cost 2 M (mp dp - 1), the same on dp counterparts, mp times, 2 M mp (dp - 1):
    2 M (mp - 1) less. M: scale and shift of two norms, in fp32."""
    tensor, megatron = (traffic_bytes(placement, plan_of(mp, dp)).gradients for placement in both(mlp(4), mp))
    assert tensor - megatron == pytest.approx(2 * (2 * 2 * HIDDEN * 4.0) * (mp - 1))


@pytest.mark.parametrize("mp", [2, 4])
def test_activations_of_duplicated_ops_are_kept_whole(mp):
    """Two norms keep their inputs (4 bytes an element), the residual sum its mask (1 byte): 9 bytes
    a feature of each token, of which "tensor" keeps 1 / mp."""
    tensor, megatron = (memory_per_gpu(placement, plan_of(mp)) for placement in both(mlp(4), mp))
    more = (1 - 1 / mp) * 9 * 4 * SEQUENCE * HIDDEN
    assert megatron.activations_bytes - tensor.activations_bytes == pytest.approx(more)
    assert np.array_equal(megatron.parameters_bytes, tensor.parameters_bytes)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize(("mp", "samples"), [(2, 4), (4, 4), (4, 2), (8, 1)])
def test_memory_is_at_least_that_of_the_tensor_layout(mp, samples, recompute):
    plan = plan_of(mp, recompute=recompute)
    tensor, megatron = (memory_per_gpu(placement, plan) for placement in both(mlp(samples), mp))
    assert (megatron.total_bytes >= tensor.total_bytes).all()


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("samples", [1, 2, 4])
def test_gpt_makes_megatrons_all_reduces_shared_by_all_gpus(samples, layers):
    """Two forward and two backward for each layer (Shoeybi et al. 2019, figure 4), one for the lookup and one
    for the logits: each 2 (n - 1) / n S out of every GPU and into it, also where the batch has fewer samples
    than the group has GPUs. The loss exchanges one fp32 statistic of each token with everyone."""
    n = 4
    options = Gpt.Options(layers=layers, hidden=HIDDEN, heads=4, sequence=SEQUENCE, vocabulary=48)
    plan = GroupTemplate.of(placed(Gpt(options).graph(samples, "mixed"), "megatron", mp=n), plan_of(n))
    tokens = samples * SEQUENCE
    expected = (4 * layers + 2) * 2 * (n - 1) / n * (2.0 * tokens * HIDDEN) + (n - 1) * 4.0 * tokens
    sent = plan.transfers
    for ends in (sent.sender, sent.device):
        assert np.bincount(ends, sent.size_bytes).tolist() == [expected] * n


def experiment(registry, layout, *, mp, gpus=4, recompute=False, topology="elect-flat", search=None):
    plan = {"mp": mp, "global_batch": 16, "tau_us": 1.0, "recompute": recompute, "layout": layout}
    return read_experiment(
        {
            "title": "layouts",
            "cluster": {"gpus": gpus, "bandwidth_gbps": 100},
            "workload": [{**GPT, "strategy": plan, "search": search or {}}],
            "topology": [{"name": topology}],
        },
        registry,
    )


@pytest.mark.parametrize("recompute", [False, True])
def test_on_one_gpu_a_group_both_are_the_same_run(registry, recompute):
    """mp = 1: nothing is cut, so nothing is duplicated; equal to the last bit."""
    rows = [
        run_experiment(experiment(registry, name, mp=1, recompute=recompute)).cases[0]
        for name in ("tensor", "megatron")
    ]
    assert repr(rows[0]) == repr(rows[1])


@pytest.mark.parametrize("topology", ["elect-flat", "sip-ring", "sip-ocs"])
@pytest.mark.parametrize("mp", [2, 4])
def test_every_kind_of_network_runs_it(registry, mp, topology):
    """Placed by Algorithm 1 under the network's limits, through `run`: more work."""
    tensor, megatron = (
        run_experiment(experiment(registry, name, mp=mp, gpus=8, topology=topology)).cases[0]
        for name in ("tensor", "megatron")
    )
    assert megatron.compute_us > tensor.compute_us
    assert megatron.iteration_us >= megatron.lower_bound_us


def test_search_tries_it_beside_the_others(registry):
    (job,) = experiment(registry, "tensor", mp=2, search={"mp": [2], "layouts": ["tensor", "megatron"]}).jobs
    tried = [(c.mp, c.layout) for c in search_candidates(job, 4)]
    assert {layout for mp, layout in tried if mp == 2} == {"tensor", "megatron"}


def test_explain_says_what_every_gpu_does():
    """One line for the duplicated norms, one for the products, which are divided."""
    answer = CliRunner().invoke(main, ["explain", str(ROOT / "examples" / "v100_server.toml")])
    assert answer.exit_code == 0, answer.output
    lines = {line.split()[1]: line for line in answer.output.splitlines() if "layer*" in line}
    assert "all of it" in lines["layer*.norm*"]
    assert "all of it" in lines["layer*.residual*"]
    assert "its part" in lines["layer*.attention.qkv"]


def test_a_plain_run_predicts_measured_tensor_parallelism_within_20_percent():
    """Sequences/s of Megatron-LM and OneFlow on 8 V100s (docs/validation.md); of the nearer of the two."""
    measured = {"MP 8": (23.11, 24.92), "DP 2 x MP 4": (27.75, 29.65)}
    result = sipml.run(ROOT / "examples" / "v100_server.toml")
    assert {case.workload for case in result.cases} == set(measured)
    for case in result.cases:
        low, high = measured[case.workload]
        rate = case.global_batch * 1e6 / case.iteration_us
        assert 0.8 * low <= rate <= 1.2 * high
