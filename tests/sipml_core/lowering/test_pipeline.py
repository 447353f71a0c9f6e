"""Pipelines of a small GPT: the time that its schedule allows, what is in flight, memory and bytes."""

from __future__ import annotations

import itertools

import attrs
import numpy as np
import pytest

from sipml_core.engine import simulate
from sipml_core.errors import InfeasibleError
from sipml_core.lowering import check_memory, check_parameters
from sipml_core.lowering.memory import memory_per_gpu
from sipml_core.lowering.passtasks import row_of
from sipml_core.lowering.schedules import Pass, PassKind, most_in_flight
from sipml_core.model import GRADIENT, Network, Plan
from sipml_core.testing.pipelines import lowered, pass_times, placed
from sipml_core.testing.pipelines import run_iteration as run
from sipml_core.testing.worked import switch
from sipml_core.workloads import Transformer

SCHEDULES = [("gpipe", 1), ("1f1b", 1), ("interleaved", 2), ("zb-h1", 1)]


def critical_path_us(lowering):
    """When the last pass of each stage ends if nothing is sent: the longest way through its schedule."""
    passes, took = lowering.template.passes.passes, pass_times(lowering)
    parts = lowering.plan.model_parts
    end = {}
    left = [list(own) for own in passes]
    while any(left):
        for own, whole in zip(left, passes, strict=True):
            while own:
                each = own[0]
                needs = [whole[len(whole) - len(own) - 1]] if len(own) < len(whole) else []
                if each.kind is PassKind.FORWARD and each.chunk:
                    needs.append(Pass(each.kind, each.micro_batch, each.chunk - 1))
                if each.kind is PassKind.BACKWARD and each.chunk + 1 < parts:
                    needs.append(Pass(each.kind, each.micro_batch, each.chunk + 1))
                if any(need not in end for need in needs):
                    break
                end[each] = max((end[need] for need in needs), default=0.0) + took[row_of(each)]
                own.pop(0)
    return [end[own[-1]] for own in passes]


@pytest.mark.parametrize(("schedule", "chunks"), SCHEDULES)
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_without_a_network_the_schedule_is_the_time(schedule, chunks, recompute):
    """Nothing sent takes time: each stage ends its last pass when the longest way through all lists does."""
    plan = Plan(
        mp=1, pp=4, dp=1, global_batch=8, micro_batch=1, schedule=schedule, chunks=chunks, recompute=recompute
    )
    job = lowered(plan, tolerance=0.5)  # cuts at the ends of layers: a pass waits for one tensor
    timeline, nodes = run(job)
    passes = job.template.passes
    for own, expected in zip(passes.passes, critical_path_us(job), strict=True):
        last = own[-1]
        ends = timeline.end_us[nodes[last.micro_batch, passes.row == row_of(last), 0]]
        assert ends.max() == pytest.approx(expected, rel=1e-6)


def test_equal_stages_have_the_bubble_of_1f1b():
    """The slowest stage works m times, the others once each way: sum of the others + m x the slowest."""
    plan = Plan(mp=1, pp=4, dp=1, global_batch=16, micro_batch=1)
    job = lowered(plan)
    stage_us = pass_times(job).reshape(4, 3).sum(axis=1)
    assert stage_us.argmax() == 3
    timeline, nodes = run(job)
    last = timeline.end_us[nodes[:, job.template.passes.row >= 0]].max()
    assert last == pytest.approx(stage_us[:3].sum() + 16 * stage_us[3], rel=1e-6)


@pytest.mark.parametrize(("schedule", "chunks"), SCHEDULES)
@pytest.mark.parametrize("gbps", [1e9, 0.5])
def test_in_flight_in_the_timeline_is_that_of_the_list(schedule, chunks, gbps):
    """Also on a slow network no stage runs ahead of its list: what waits does not let others pass."""
    plan = Plan(mp=2, pp=4, dp=1, global_batch=8, micro_batch=1, schedule=schedule, chunks=chunks)
    job = lowered(plan)
    timeline, nodes = run(job, gbps)
    passes = job.template.passes
    frees = PassKind.WEIGHTS if schedule == "zb-h1" else PassKind.BACKWARD
    for stage, own in enumerate(passes.passes):
        moments = []
        for each in own:
            at = nodes[each.micro_batch, passes.row == row_of(each), 0]
            if each.kind is PassKind.FORWARD:
                moments.append((timeline.start_us[at].min(), 1, each.chunk))
            if each.kind is frees:
                moments.append((timeline.end_us[at].max(), -1, each.chunk))
        for chunk in range(stage, plan.model_parts, plan.pp):
            held = np.cumsum([change for _, change, c in sorted(moments) if c == chunk])
            listed = most_in_flight(tuple(each for each in own if each.chunk == chunk))
            assert held.max() == listed
        if schedule == "1f1b":
            assert most_in_flight(own) == min(plan.pp - stage, plan.micro_batches)


@pytest.mark.parametrize(("schedule", "chunks"), SCHEDULES)
def test_passes_of_a_stage_do_not_overlap(schedule, chunks):
    """A pass starts when the one before it in the list has ended on all devices of the stage."""
    plan = Plan(mp=2, pp=2, dp=1, global_batch=4, micro_batch=1, schedule=schedule, chunks=chunks)
    job = lowered(plan)
    timeline, nodes = run(job, gbps=1.0)
    passes = job.template.passes
    for own in passes.passes:
        spans = [nodes[each.micro_batch, passes.row == row_of(each), 0] for each in own]
        for before, after in itertools.pairwise(spans):
            assert timeline.end_us[before].max() <= timeline.start_us[after].min() + 1e-9


def test_the_optimizer_waits_for_its_stages_last_pass():
    """However early a bucket is summed, no optimizer op starts in the gaps of a backward pass."""
    plan = Plan(mp=2, pp=2, dp=2, global_batch=8, micro_batch=1, bucket_bytes=1.0)
    job = lowered(plan)
    timeline, nodes = run(job)
    passes = job.template.passes
    for stage, optimizer in enumerate(passes.optimizer):
        last = passes.passes[stage][-1]
        ends = timeline.end_us[nodes[last.micro_batch, passes.row == row_of(last)]]
        assert len(optimizer)
        assert timeline.start_us[nodes[-1, optimizer]].min() >= ends.max() - 1e-9


@pytest.mark.parametrize(("schedule", "chunks"), SCHEDULES)
def test_kernels_agree(schedule, chunks):
    """C and the plain reference end every node at the same time."""
    plan = Plan(mp=2, pp=2, dp=2, global_batch=8, micro_batch=1, schedule=schedule, chunks=chunks)
    job = lowered(plan)
    fast, slow = (run(job, 5.0, kernel)[0] for kernel in ("c", "reference"))
    assert fast.end_us == pytest.approx(slow.end_us, rel=1e-12)


def test_bytes_by_kind():
    """Activations are sent once for each micro-batch, gradients once; neither depends on the schedule."""
    small = {
        m: lowered(Plan(mp=2, pp=4, dp=2, global_batch=2 * m, micro_batch=1)).template for m in (1, 4, 8)
    }
    one = small[1].traffic
    for m, template in small.items():
        assert template.traffic.gradients == one.gradients > 0
        assert template.traffic.activations == m * one.activations > 0
    for schedule in ("gpipe", "zb-h1"):
        plan = Plan(mp=2, pp=4, dp=2, global_batch=8, micro_batch=1, schedule=schedule)
        assert lowered(plan).template.traffic == small[4].traffic


def test_a_boundary_carries_the_hidden_state_each_way_once():
    """Between stages of whole layers: b s h elements forward, as many back, in mp parts; nothing else."""
    plan = Plan(mp=2, pp=4, dp=1, global_batch=4, micro_batch=2)
    template = lowered(plan).template
    sent = template.transfers
    stage, to = sent.sender // 2, sent.device // 2
    across = stage != to
    assert set(zip(stage[across].tolist(), to[across].tolist(), strict=True)) == {
        (a, b) for a in range(4) for b in range(4) if abs(a - b) == 1
    }
    whole = 2 * 32 * 64 * 2.0
    for a, b in [(0, 1), (1, 2), (2, 3), (3, 2), (2, 1), (1, 0)]:
        assert sent.size_bytes[(stage == a) & (to == b)].sum() == whole


def test_what_crosses_several_cuts_goes_to_each_stage_that_reads_it_once():
    """From the stage that makes it, whole, past those between: an encoder's output goes to all decoders."""
    options = Transformer.Options(
        layers=4, hidden=32, heads=4, feed_forward=64, source_sequence=16, target_sequence=16, vocabulary=50
    )
    template = lowered(
        Plan(mp=1, pp=6, dp=1, global_batch=4, micro_batch=2), workload=Transformer(options)
    ).template
    tasks, sent = template.group, template.transfers
    graph = tasks.graph.graph
    made = {
        operand.tensor: op.name
        for op in graph.ops
        for operand in op.writes
        if graph.tensor[operand.tensor].parameter is None  # gradients of parameters are summed
    }
    stage = {op.name: int(s) for op, s in zip(graph.ops, tasks.placement.part, strict=True)}
    wanted = {
        (made[operand.tensor], stage[made[operand.tensor]], stage[op.name])
        for op in graph.ops
        for operand in op.reads
        if operand.tensor in made and stage[made[operand.tensor]] != stage[op.name]
    }
    names = [graph.tensors[t].name for t in sent.tensor.tolist()]
    found = [
        (made[n], a, b) for n, a, b in zip(names, sent.sender.tolist(), sent.device.tolist(), strict=True)
    ]
    assert len(found) == len(set(found))
    assert set(found) == wanted
    assert sent.size_bytes.tolist() == [graph.tensor[name].size_bytes for name in names]
    assert max(b - a for _, a, b in found) > 1


def test_tied_embeddings_are_summed_between_the_first_and_the_last_stage():
    """One replica: an all-reduce of M bytes over two GPUs, 2 (n - 1) M = 2 M in all, and no other sum."""
    plan = Plan(mp=1, pp=4, dp=1, global_batch=8, micro_batch=1)
    template = lowered(plan).template
    tied = template.group.graph.graph.tensor["embedding.weight"]
    assert template.traffic.gradients == pytest.approx(2 * tied.size_bytes, rel=1e-12)
    job = lowered(plan).tasks()
    gradients = job.kind == GRADIENT
    assert set(zip(job.src[gradients].tolist(), job.dst[gradients].tolist(), strict=True)) == {(0, 3), (3, 0)}


def test_one_stage_and_one_micro_batch_have_no_order_to_keep():
    """Whatever the schedule says, the tasks are those of a job without stages."""
    tasks = []
    for schedule in ("gpipe", "1f1b", "zb-h1"):
        plan = Plan(mp=2, dp=2, global_batch=4, schedule=schedule)
        tasks.append(lowered(plan).tasks())
    for other in tasks[1:]:
        for field in attrs.fields(type(other)):
            assert np.array_equal(getattr(other, field.name), getattr(tasks[0], field.name))
    assert (tasks[0].gpu < 0).sum() < 200


def test_iterations_follow_each_other():
    """The second of two iterations takes as long as one, less where they overlap."""
    one, two = (lowered(Plan(mp=1, pp=4, dp=1, global_batch=4, micro_batch=1, iterations=n)) for n in (1, 2))
    times = []
    for job in (one, two):
        graph = job.tasks()
        times.append(simulate(graph, Network.of(switch(4, 1e9), graph)).total_us)
    slowest = pass_times(one).reshape(4, 3).sum(axis=1).max()
    assert times[0] + 4 * slowest < times[1] <= 2 * times[0] + 1e-6


def test_memory_counts_what_is_in_flight():
    """Activations of stage i are min(p - i, m) times those of one micro-batch; GPipe holds all m."""
    plan = Plan(mp=2, pp=4, dp=1, global_batch=8, micro_batch=1)
    placement = placed(plan)
    one = memory_per_gpu(placement, attrs.evolve(plan, global_batch=1)).activations_bytes.reshape(4, 2)
    held = memory_per_gpu(placement, plan).activations_bytes.reshape(4, 2)
    assert held == pytest.approx(one * np.array([4, 3, 2, 1])[:, None])
    gpipe = memory_per_gpu(placement, attrs.evolve(plan, schedule="gpipe")).activations_bytes.reshape(4, 2)
    assert gpipe == pytest.approx(8 * one)


def test_states_are_each_on_one_stage():
    """Over all stages: 16 bytes a parameter in mixed precision, the tied table on the first and the last."""
    plan = Plan(mp=1, pp=4, dp=1, global_batch=8, micro_batch=1)
    placement = placed(plan)
    use = memory_per_gpu(placement, plan)
    graph = placement.graph.graph
    twice = graph.tensor["embedding.weight"].elements
    states = use.parameters_bytes + use.gradients_bytes + use.optimizer_bytes
    assert states.sum() == 16 * (graph.parameter_elements + twice)
    # Two layers each: the first has positions besides, the last the final norm.
    assert states[1] == states[2] < states[3] < states[0]


@pytest.mark.parametrize("zero", [1, 2])
def test_zero_divides_states(zero):
    """ZeRO (Rajbhandari et al. 2020): 4 Psi + 12 Psi / d, and 2 Psi + 14 Psi / d bytes."""
    plan = Plan(mp=1, pp=2, dp=4, global_batch=8, micro_batch=1)
    placement = placed(plan)
    none, some = (memory_per_gpu(placement, attrs.evolve(plan, zero=level)) for level in (0, zero))
    psi = none.parameters_bytes / 2
    whole = {1: 4, 2: 2}[zero]
    states = some.parameters_bytes + some.gradients_bytes + some.optimizer_bytes
    assert states == pytest.approx(whole * psi + (16 - whole) * psi / 4)
    assert np.array_equal(some.activations_bytes, none.activations_bytes)


def test_recomputation_keeps_less():
    """Full recomputation keeps least, selective drops what attention makes of all pairs of tokens."""
    plan = Plan(mp=1, pp=4, dp=1, global_batch=8, micro_batch=1)
    placement = placed(plan)
    none, selective, full = (
        memory_per_gpu(placement, attrs.evolve(plan, recompute=level)).activations_bytes
        for level in ("none", "selective", "full")
    )
    # Stage 0 has two layers and four micro-batches; of a layer's scores 5 bytes for each pair are dropped
    # (2 softmax, 1 mask, 2 dropout), and those of one layer are there again while it goes back.
    pairs = 4 * 32 * 32
    assert none[0] - selective[0] == 4 * 2 * 5 * pairs - 5 * pairs
    assert (full < selective).all()


def test_a_refusal_names_the_fullest_stage_and_what_would_do():
    """The first stage holds most micro-batches; less kept, or states shared, would make it fit."""
    plan = Plan(mp=1, pp=4, dp=2, global_batch=16, micro_batch=1)
    placement = placed(plan)
    need = memory_per_gpu(placement, plan)
    assert check_memory(placement, plan, need.total_bytes.max()) == need.total_bytes.max()
    with pytest.raises(InfeasibleError) as refused:
        check_memory(placement, plan, need.total_bytes.max() - 1)
    message = str(refused.value)
    assert "gpt with mp=1, pp=4, dp=2, global_batch=16, micro_batch=1, schedule 1f1b, zero=0" in message
    assert "device 0 of stage 0 needs" in message
    assert message.endswith('; recompute = "selective" or zero = 1 would do, or raise mp or pp')


def refusal(placement, plan, memory_bytes):
    with pytest.raises(InfeasibleError) as refused:
        check_memory(placement, plan, memory_bytes)
    return str(refused.value).rpartition("; ")[2]


def test_what_would_do_does():
    """The smallest change of each kind that fits; then several together; then only more GPUs a replica.

    Of 16 bytes of states a parameter two replicas with zero = 1 keep 10; activations go with the micro-batch.
    """
    plan = Plan(mp=1, pp=4, dp=2, global_batch=32, micro_batch=4, recompute="full")
    placement = placed(plan)
    use = memory_per_gpu(placement, plan)
    states, kept = use.states_bytes[use.fullest], use.activations_bytes[use.fullest]
    larger = "raise mp or pp"
    half = refusal(placement, plan, states + kept / 2)
    assert half == f"micro_batch = 2 or zero = 1 would do, or {larger}"
    both = refusal(placement, plan, states * 10 / 16 + kept / 4)
    assert both == f"micro_batch = 1 and zero = 1 would do, or {larger}"
    assert refusal(placement, plan, 0.1 * states) == larger


def test_states_alone_are_refused_with_the_level_that_would_do():
    """16 bytes a parameter on four stages; shared over two replicas in full, 8."""
    plan = Plan(mp=1, pp=4, dp=2, global_batch=8, micro_batch=1)
    graph = placed(plan).graph.graph
    quarter = graph.parameter_elements / 4
    assert check_parameters(graph, plan, 16 * quarter) == 16 * quarter
    with pytest.raises(InfeasibleError, match=r"with zero = 1 they would fit, or raise mp or pp$"):
        check_parameters(graph, plan, 15 * quarter)
    with pytest.raises(InfeasibleError, match=r"with zero = 3 they would fit"):
        check_parameters(graph, plan, 8 * quarter)
    with pytest.raises(InfeasibleError, match=r"has [0-9.]+ kB; raise mp or pp$"):
        check_parameters(graph, plan, 7 * quarter)


@pytest.mark.parametrize("steps", ["fluid", "explicit"])
@pytest.mark.parametrize("zero", [0, 1, 2])
def test_zero_sends_what_the_formulas_say(zero, steps):
    """ZeRO-1 sends what an all-reduce sends; ZeRO-2 half of it for each micro-batch and half once more."""
    plan = Plan(mp=2, pp=2, dp=3, global_batch=12, micro_batch=1, zero=zero, ring_steps=steps)
    whole = lowered(attrs.evolve(plan, zero=0)).template.traffic
    job = lowered(plan)
    times = {0: 1.0, 1: 1.0, 2: (4 + 1) / 2}[zero]
    assert job.template.traffic.gradients == pytest.approx(times * whole.gradients)
    assert job.tasks().size_bytes.sum() == pytest.approx(job.template.traffic.total)
    assert job.sends(3).size_bytes.sum() == pytest.approx(job.template.traffic.total)


@pytest.mark.parametrize("zero", [1, 2])
def test_shared_states_are_updated_between_scatter_and_gather(zero):
    """The optimizer does one part in dp of its work; nothing is gathered before, and all is at the end."""
    plan = Plan(mp=2, pp=2, dp=3, global_batch=12, micro_batch=1, zero=zero)
    job, whole = lowered(plan), lowered(attrs.evolve(plan, zero=0))
    graph = job.tasks()
    timeline = simulate(graph, Network.of(switch(12, 5.0), graph))
    optimizer = np.concatenate(job.template.passes.optimizer)
    assert len(optimizer)
    all_us = 4 * whole.template.group.duration_us[job.template.passes.row >= 0].sum() * 3
    part_us = whole.template.group.duration_us[optimizer].sum() * 3
    assert graph.duration_us.sum() == pytest.approx(all_us + part_us / 3)
    gathers = np.argsort(timeline.end_us[graph.compute_tasks :])[-1]
    assert timeline.end_us[graph.compute_tasks :][gathers] == timeline.total_us


def test_the_next_iteration_waits_for_gathered_parameters():
    """On a slow network two iterations with shared states take two gathers, none of which is left out."""
    times = []
    for iterations in (1, 2):
        plan = Plan(mp=1, pp=2, dp=2, global_batch=4, micro_batch=1, zero=1, iterations=iterations)
        graph = lowered(plan).tasks()
        times.append(simulate(graph, Network.of(switch(4, 0.05), graph)).total_us)
    assert times[1] > 1.6 * times[0]
