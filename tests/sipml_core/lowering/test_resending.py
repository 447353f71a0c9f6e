"""Activations of a layer as Korthikanti et al. (2022) count them, and what sequence parallelism sends."""

from __future__ import annotations

import numpy as np
import pytest

from sipml_core.engine import simulate
from sipml_core.lowering import GroupTemplate, Lowering, Trees
from sipml_core.lowering.memory import memory_per_gpu
from sipml_core.lowering.passtasks import row_of
from sipml_core.model import Cluster, Network, Plan
from sipml_core.testing.pipelines import lowered, placed, run_iteration, small_gpt
from sipml_core.testing.worked import switch

#: Of `small_gpt`: sequence, hidden size, heads.
S, H, A = 32, 64, 4


def plan_of(mp, batch=1, **changes):
    return Plan(**{"mp": mp, "dp": 1, "global_batch": batch, **changes})


def a_layers(quantity):
    """What one more layer adds to a quantity."""
    more, less = (quantity(small_gpt(layers=layers)) for layers in (3, 2))
    return more - less


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("t", [1, 2, 4])
@pytest.mark.parametrize(
    ("layout", "keep", "formula"),
    [
        ("megatron", True, lambda t: 10 + 24 / t + 5 * A * S / (H * t)),
        ("tensor", False, lambda t: 34 / t + 5 * A * S / (H * t)),
        ("sequence", False, lambda t: 34 / t + 5 * A * S / (H * t)),
        ("tensor", True, lambda t: 34 / t + 5 * A * S / (H * t) + 4 * (t - 1) / t),
    ],
    ids=["tensor parallel", "shards kept", "sequence parallel", "with what was gathered"],
)
def test_a_layer_keeps_what_the_formula_says(layout, keep, formula, t, batch):
    """sbh (10 + 24/t + 5as/(ht)) and sbh (34/t + 5as/(ht)); kept, the two gathered inputs of 2sbh as well."""
    plan = plan_of(t, batch, keep_gathered=keep)
    added = a_layers(
        lambda gpt: memory_per_gpu(placed(plan, layout=layout, workload=gpt), plan).activations_bytes
    )
    assert added == pytest.approx(np.full(t, S * batch * H * formula(t)))


@pytest.mark.parametrize("t", [2, 4])
@pytest.mark.parametrize(
    ("layout", "keep", "pieces"), [("tensor", True, 8), ("tensor", False, 10), ("sequence", False, 10)]
)
def test_a_layer_sends_eight_or_ten_pieces(t, layout, keep, pieces):
    """Of S (t - 1) / t a GPU each, S = 2sbh: 4 gathers, 4 scatters, and 2 gathers again."""
    plan = plan_of(t, keep_gathered=keep)
    sent = a_layers(lambda gpt: lowered(plan, layout=layout, workload=gpt).template.traffic.activations)
    assert sent == pytest.approx(pieces * (2 * S * H) * (t - 1))


def test_tensor_parallelism_without_sequences_has_nothing_to_gather_again():
    """Under `megatron` every GPU made what it keeps: the option changes no node."""
    graphs = [lowered(plan_of(4, keep_gathered=keep)).tasks() for keep in (True, False)]
    assert np.array_equal(graphs[0].duration_us, graphs[1].duration_us)
    assert np.array_equal(graphs[0].size_bytes, graphs[1].size_bytes)


@pytest.mark.parametrize("pp", [1, 2])
@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_gathers_of_the_backward_pass_begin_in_it(pp, schedule):
    """A task that sends again starts after the pass before in the list of its stage, on all its devices.

    It waits for no gradients of parameters that are made in a later pass: the iteration would not end.
    """
    plan = plan_of(2, 4, pp=pp, micro_batch=1, keep_gathered=False, schedule=schedule)
    job = lowered(plan, layout="tensor")
    group, passes = job.template.group, job.template.passes
    timeline, nodes = run_iteration(job, gbps=5.0)
    assert group.resends > 0
    sends = np.arange(group.works, len(group.subop))
    assert (group.duration_us[sends] == 0).all()
    for own in passes.passes:
        for number, each in enumerate(own):
            mine = sends[passes.row[sends] == row_of(each)]
            if len(mine) and number:
                before = own[number - 1]
                ended = timeline.end_us[nodes[before.micro_batch, passes.row == row_of(before), 0]].max()
                assert timeline.start_us[nodes[each.micro_batch, mine, 0]].min() >= ended - 1e-9


@pytest.mark.parametrize("changes", [{}, {"pp": 2}, {"recompute": "full"}, {"zero": 3, "dp": 2}], ids=str)
def test_kernels_agree_and_a_free_network_takes_no_longer(changes):
    """C as the reference; sending again costs nothing where sending does not."""
    changes = {"batch": 4, "micro_batch": 1, **changes}
    jobs = [
        lowered(plan_of(2, **changes, keep_gathered=keep), layout="tensor", workload=small_gpt(layers=2))
        for keep in (True, False)
    ]
    fast, slow = (run_iteration(jobs[1], 5.0, kernel)[0] for kernel in ("c", "reference"))
    assert fast.end_us == pytest.approx(slow.end_us, rel=1e-12)
    kept, again = (run_iteration(job)[0].total_us for job in jobs)
    assert again == pytest.approx(kept, rel=1e-6)


def test_along_a_chain_what_is_gathered_again_is_passed_on_again():
    """The line 0 - 1 - 2 - 3: every box goes over each segment once for each gather; the run ends."""
    line = Trees(parents=np.array([[0, 0, 1, 2], [1, 1, 1, 2], [1, 2, 2, 2], [1, 2, 3, 3]]), relays=True)
    sent = {}
    for keep in (True, False):
        plan = plan_of(4, keep_gathered=keep)
        template = GroupTemplate.of(placed(plan, layout="tensor"), plan, line)
        graph = Lowering.of(template, Cluster(gpus=4, bandwidth_gbps=1.0)).tasks()
        assert (abs(template.transfers.sender - template.transfers.device) == 1).all()
        sent[keep] = template.traffic.activations
        assert simulate(graph, Network.of(switch(4, 5.0), graph)).total_us > 0
    assert sent[False] > sent[True]
