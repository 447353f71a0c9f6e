"""ZeRO-3: what is gathered and scattered, when, and what a GPU keeps of it."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

from sipml_core.engine import simulate
from sipml_core.errors import ConfigError
from sipml_core.lowering.memory import memory_per_gpu
from sipml_core.lowering.passtasks import row_of
from sipml_core.model import Network, Plan
from sipml_core.testing.pipelines import lowered, placed, run_iteration, small_gpt
from sipml_core.testing.worked import switch


def plan_of(**changes):
    return Plan(**{"mp": 1, "dp": 4, "global_batch": 16, "micro_batch": 1, "zero": 3, **changes})


@pytest.mark.parametrize("steps", ["fluid", "explicit"])
@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("fp32", [False, True])
def test_three_psi_a_micro_batch(steps, recompute, fp32):
    """ZeRO section 7.2: two gathers of 2 Psi bytes, one scatter of 2 Psi (4 in fp32), (d - 1) / d a GPU."""
    plan = plan_of(ring_steps=steps, recompute=recompute, fp32_gradients=fp32, bucket_bytes=3e4)
    job = lowered(plan)
    psi = job.template.group.graph.graph.parameter_elements
    each = (2 + 2 + (4 if fp32 else 2)) * psi
    assert job.template.traffic.gradients == pytest.approx(4 * (4 - 1) * each)
    assert job.tasks().size_bytes.sum() == pytest.approx(job.template.traffic.total)
    assert job.sends(4).size_bytes.sum() == pytest.approx(job.template.traffic.total)


@pytest.mark.parametrize(("zero", "fp32", "bytes_each"), [
    (0, False, 4), (1, False, 4), (2, False, 4 * 2 + 2), (3, False, 4 * 6),
    (0, True, 8), (1, True, 6), (2, True, 4 * 4 + 2), (3, True, 4 * 8),
])  # fmt: skip
def test_bytes_of_every_level(zero, fp32, bytes_each):
    """A parameter, a GPU, m = 4, times (d - 1) / d: an all-reduce; scatter and gather; m scatters and a
    gather; m times two gathers and a scatter. Gradients have 2 bytes or 4."""
    job = lowered(plan_of(zero=zero, fp32_gradients=fp32, bucket_bytes=3e4))
    psi = job.template.group.graph.graph.parameter_elements
    assert job.template.traffic.gradients == pytest.approx(bytes_each * psi * 3 / 4 * 4)
    assert job.tasks().size_bytes.sum() == pytest.approx(job.template.traffic.total)


@pytest.mark.parametrize(
    "changes",
    [
        {"mp": 2, "pp": 2, "dp": 2},
        {"pp": 2, "schedule": "interleaved", "chunks": 2},
        {"pp": 2, "schedule": "zb-h1", "bucket_bytes": 3e4},
        {"mp": 2, "layout": "tensor", "micro_batch": 2},
    ],
    ids=str,
)
def test_what_is_sent_is_what_is_counted(changes):
    """In every schedule, and where several GPUs of a replica have the same parameters."""
    changes = dict(changes)
    layout = changes.pop("layout", "megatron")
    job = lowered(plan_of(**changes), layout=layout)
    sent = job.tasks().size_bytes.sum()
    assert sent == pytest.approx(job.template.traffic.total)
    assert job.sends(job.plan.dp).size_bytes.sum() == pytest.approx(sent)
    assert sent > lowered(attrs.evolve(job.plan, zero=2), layout=layout).template.traffic.total


def test_more_shared_is_more_sent_and_less_kept():
    """Bytes rise from level 1 to 3 (m > 1), memory falls from 0 to 3."""
    plan = plan_of(bucket_bytes=3e4)
    gradients = [lowered(attrs.evolve(plan, zero=z)).template.traffic.gradients for z in range(4)]
    assert gradients[0] == pytest.approx(gradients[1])
    assert gradients[1] < gradients[2] < gradients[3]
    placement = placed(plan)
    kept = [memory_per_gpu(placement, attrs.evolve(plan, zero=z)).total_bytes.max() for z in range(4)]
    assert kept[0] > kept[1] > kept[2] > kept[3]


@pytest.mark.parametrize(("fp32", "whole"), [(False, 16), (True, 18)])
@pytest.mark.parametrize("pp", [1, 4])
def test_memory_of_every_level_and_stage(fp32, whole, pp):
    """16 bytes a parameter (18 with main gradients in fp32), of which levels divide 12, 12 + 2 (4), all."""
    plan = plan_of(pp=pp, fp32_gradients=fp32, bucket_bytes=3e4)
    placement = placed(plan)
    uses = [memory_per_gpu(placement, attrs.evolve(plan, zero=level)) for level in range(4)]
    psi = uses[0].parameters_bytes / 2
    shared = {0: 0, 1: 12, 2: whole - 2, 3: whole}
    for level, use in enumerate(uses):
        kept = use.states_bytes - use.gathered_bytes
        assert kept == pytest.approx(psi * (whole - shared[level] + shared[level] / 4))
        assert np.array_equal(use.activations_bytes, uses[0].activations_bytes)
        assert (use.gathered_bytes > 0).all() == (level == 3)


def test_two_buckets_are_gathered_at_once():
    """With equal layers in a bucket each, the fullest moment has two of them; never more than all."""
    plan = plan_of(bucket_bytes=1.0)
    placement = placed(plan)
    use = memory_per_gpu(placement, plan)
    largest = max(t.size_bytes for t in placement.graph.graph.tensors if t.name.endswith(".weight"))
    # The tied table is there from the first op to the last; beside it the two products of an MLP.
    table = placement.graph.graph.tensor["embedding.weight"].size_bytes
    assert table + 2 * largest <= use.gathered_bytes[0] < table + 3 * largest
    everything = memory_per_gpu(placement, attrs.evolve(plan, bucket_bytes=1e9))
    assert everything.gathered_bytes[0] == everything.parameters_bytes[0] * 4


@pytest.mark.parametrize("gbps", [0.5, 50.0])
@pytest.mark.parametrize("changes", [{}, {"pp": 2, "dp": 2}, {"recompute": "full"}], ids=str)
def test_parameters_are_gathered_one_bucket_ahead(changes, gbps):
    """A gather starts no sooner than its GPU comes to the bucket before."""
    plan = plan_of(bucket_bytes=3e4, **changes)
    job = lowered(plan)
    gathers, passes = job.template.gathers, job.template.passes
    timeline, nodes = run_iteration(job, gbps)
    alone_us = (plan.dp - 1) / plan.dp * gathers.size_bytes / (gbps * 125)
    checked = 0
    for each in (each for own in passes.passes for each in own):
        row, tasks = gathers.rows[row_of(each)], nodes[each.micro_batch]
        follows = np.flatnonzero(row.device[1:] == row.device[:-1]) + 1
        follows = follows[row.before[follows - 1] >= 0]
        reached_us = timeline.end_us[tasks[row.before[follows - 1]]]
        used_us = timeline.start_us[tasks[row.first_task[follows]]]
        assert (used_us >= reached_us + alone_us[row.unit[follows], None] * (1 - 1e-9)).all()
        checked += len(follows)
    assert checked > 20


def test_on_a_free_network_sharing_parameters_costs_nothing():
    """At 1e9 Gbps level 3 takes what level 1 takes."""
    times = [run_iteration(lowered(plan_of(zero=z, pp=2, dp=2)))[0].total_us for z in (1, 3)]
    assert times[1] == pytest.approx(times[0], rel=1e-5)


def test_a_slow_network_bounds_the_iteration():
    """No less than all that a port sends, 3 Psi m; no more than that and the work, one after the other."""
    plan, gbps = plan_of(bucket_bytes=3e4), 0.05
    job = lowered(plan)
    time_us = run_iteration(job, gbps)[0].total_us
    port_us = job.template.traffic.gradients / 4 / (gbps * 125)
    work_us = run_iteration(job)[0].total_us
    assert port_us <= time_us <= port_us + work_us


@pytest.mark.parametrize("changes", [{"pp": 2, "dp": 2}, {"mp": 2, "dp": 2}, {"optimizer_step": "last"}])
def test_kernels_agree(changes):
    """C and the plain reference end every node at the same time."""
    job = lowered(plan_of(**changes), workload=small_gpt(layers=2))
    fast, slow = (run_iteration(job, 5.0, kernel)[0] for kernel in ("c", "reference"))
    assert fast.end_us == pytest.approx(slow.end_us, rel=1e-12)


def test_the_next_iteration_gathers_what_was_updated():
    """The first gather of a unit waits for its optimizer tasks: two iterations take two of everything."""
    times = []
    for iterations in (1, 2):
        graph = lowered(plan_of(iterations=iterations, bucket_bytes=3e4)).tasks()
        times.append(simulate(graph, Network.of(switch(4, 0.05), graph)).total_us)
    assert 1.9 * times[0] < times[1] <= 2 * times[0]


def test_one_replica_shares_nothing():
    """With dp = 1 level 3 is level 0, node by node."""
    graphs = [lowered(plan_of(dp=1, global_batch=4, zero=z)).tasks() for z in (0, 3)]
    for field in attrs.fields(type(graphs[0])):
        assert np.array_equal(getattr(graphs[0], field.name), getattr(graphs[1], field.name))


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_the_optimizer_starts_after_its_bucket_or_after_the_last(zero):
    """After the last: not before a port has received all of its part of all sums; else before."""
    first_us = {}
    for step in ("bucket", "last"):
        job = lowered(plan_of(zero=zero, optimizer_step=step, bucket_bytes=3e4, global_batch=4))
        timeline, nodes = run_iteration(job, gbps=0.5)
        first_us[step] = timeline.start_us[nodes[-1, np.concatenate(job.template.passes.optimizer)]].min()
    psi = job.template.group.graph.graph.parameter_elements
    sums_us = {0: 2, 1: 1, 2: 1, 3: 3}[zero] * 2 * psi * 3 / 4 / (0.5 * 125)
    assert first_us["bucket"] < sums_us <= first_us["last"]


def test_bad_plans_are_refused():
    """One line with what would do."""
    with pytest.raises(ConfigError, match=r"counter_rotating must be false where zero is above 0.*zero=3"):
        plan_of(counter_rotating=True)
