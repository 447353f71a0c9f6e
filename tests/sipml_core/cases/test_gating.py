"""Which transfers, and which pairs, a computation waits for."""

import attrs

from sipml_core.cases.gating import feeds_compute, gating_pairs
from sipml_core.model.taskgraph import BARRIER, TaskGraph
from sipml_core.testing.worked import lowering


def test_a_transfer_that_feeds_a_barrier_or_a_transfer_gates_nothing():
    """Nodes 0 and 1 compute, 2 is a barrier; the transfers 3, 4 and 5 feed 1, the barrier, and transfer 3."""
    tasks = TaskGraph(
        gpus=2,
        gpu=[0, 1, BARRIER],
        duration_us=[1.0, 1.0, 0.0],
        priority=[0] * 6,
        src=[0, 0, 1],
        dst=[1, 1, 0],
        size_bytes=[1.0, 1.0, 1.0],
        latency_steps=[1.0] * 3,
        succ_start=[0, 3, 3, 3, 4, 5, 6],
        successors=[3, 4, 5, 1, 2, 3],
        marks=[],
        label=[],
    )
    assert feeds_compute(tasks).tolist() == [True, False, False]


def test_gradients_do_not_gate_however_many_iterations_there_are():
    """Of three iterations: the second reads what the gradients of the first updated, which is no gate."""
    one = lowering(dp=2)
    plan = attrs.evolve(one.plan, iterations=3)
    three = attrs.evolve(one, template=attrs.evolve(one.template, plan=plan))
    assert gating_pairs(three).tolist() == gating_pairs(one).tolist()
    tasks = three.tasks()
    assert tasks.transfers == 3 * one.tasks().transfers
