"""Ring collectives: bytes, order, and what must have happened before a member is done."""

import networkx as nx
import numpy as np
import pytest

from sipml_core.engine.simulation import simulate
from sipml_core.errors import ConfigError, SipmlError
from sipml_core.lowering.collectives import Rings, all_reduce_bytes, ring_allreduce_tasks
from sipml_core.model.taskbuilder import TaskBuilder

STEPS = ("explicit", "fluid")
SIZES = (2, 3, 4, 5, 6, 7, 8, 9, 12, 24, 64)


def digraph(tasks):
    graph = nx.DiGraph()
    graph.add_nodes_from(range(tasks.nodes))
    for node in range(tasks.nodes):
        start, stop = tasks.succ_start[node : node + 2]
        graph.add_edges_from((node, int(after)) for after in tasks.successors[start:stop])
    return graph


def sent_bytes(tasks):
    return np.bincount(tasks.src, weights=tasks.size_bytes, minlength=tasks.gpus)


def received_bytes(tasks):
    return np.bincount(tasks.dst, weights=tasks.size_bytes, minlength=tasks.gpus)


def run_collective(name, members, steps, size_bytes=1000.0):
    """A compute task per member, the collective, a compute task per member; and their nodes."""
    members = np.asarray(members, dtype=np.int32)
    builder = TaskBuilder(int(members.max()) + 1, labels=("work", "sync"))
    first = builder.tasks(members, 1.0, 0, 0)
    done = getattr(Rings(builder=builder, steps=steps, label=1), name)(members, size_bytes, first)
    last = builder.tasks(members, 1.0, 0, 0)
    builder.depend(done, last)
    return builder.build(), first, last


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("n", SIZES)
def test_all_reduce_sends_two_m_n_minus_1_over_n(n, steps):
    """Each member sends and receives 2 M (n - 1) / n bytes, in 2 (n - 1) steps."""
    tasks = ring_allreduce_tasks(n, 1e6, steps=steps)
    assert sent_bytes(tasks) == pytest.approx(np.full(n, 2e6 * (n - 1) / n))
    assert received_bytes(tasks) == pytest.approx(np.full(n, 2e6 * (n - 1) / n))
    latencies = np.bincount(tasks.src, weights=tasks.latency_steps)
    assert latencies.tolist() == [2 * (n - 1)] * n
    assert all_reduce_bytes(1e6, n) == pytest.approx(2e6 * (n - 1) / n)


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("name", ["reduce_scatter", "all_gather"])
@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_one_phase_sends_half_as_much(n, name, steps):
    """A reduce-scatter or an all-gather alone: M (n - 1) / n bytes per member."""
    tasks, _, _ = run_collective(name, [range(n)], steps)
    assert sent_bytes(tasks) == pytest.approx(np.full(n, 1000.0 * (n - 1) / n))


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("name", ["reduce_scatter", "all_gather", "all_reduce"])
@pytest.mark.parametrize("n", [2, 3, 4, 7])
def test_nobody_is_done_before_everybody_was_ready(n, name, steps):
    """Every result holds a part of every member, so each member's start precedes each member's end."""
    tasks, first, last = run_collective(name, [range(n)], steps)
    graph = digraph(tasks)
    assert nx.is_directed_acyclic_graph(graph)
    for end in last[0]:
        assert set(first[0].tolist()) <= nx.ancestors(graph, int(end))


@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_explicit_steps_add_every_part_exactly_once(n):
    """Following each chunk along the transfers, every member ends with the sum of all parts of all chunks."""
    tasks = ring_allreduce_tasks(n, 1.0)
    parts = [[{member} for _ in range(n)] for member in range(n)]
    for transfer in range(tasks.transfers):
        step, member = divmod(transfer, n)
        assert (tasks.src[transfer], tasks.dst[transfer]) == (member, (member + 1) % n)
        chunk = (member - step) % n
        arrived = parts[member][chunk]
        own = parts[(member + 1) % n]
        if step < n - 1:
            assert not arrived & own[chunk]
            own[chunk] = own[chunk] | arrived
        else:
            own[chunk] = arrived
    assert all(chunk == set(range(n)) for own in parts for chunk in own)


def test_a_step_waits_for_the_chunk_it_forwards():
    """Step s of member i follows step s - 1 of member i - 1 and nothing else when all are ready at once."""
    graph = digraph(ring_allreduce_tasks(4, 1.0))
    for node in graph:
        step, member = divmod(node, 4)
        expected = [(step - 1) * 4 + (member - 1) % 4] if step else []
        assert list(graph.predecessors(node)) == expected


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("shape", [(4, 8), (2, 4, 8), (8, 1), (1, 8), (3, 5)])
def test_tiers_send_as_much_as_one_flat_ring(shape, steps):
    """Reduce-scatter over n, all-reduce of 1/n over l, all-gather over n: in all 2 M (n l - 1) / (n l)."""
    members = np.arange(np.prod(shape)).reshape(1, *shape)
    tasks, first, last = run_collective("all_reduce", members, steps)
    assert sent_bytes(tasks) == pytest.approx(np.full(members.size, all_reduce_bytes(1000.0, members.size)))
    graph = digraph(tasks)
    ends = last.reshape(-1)
    assert all(set(first.reshape(-1).tolist()) <= nx.ancestors(graph, int(end)) for end in ends[[0, -1]])


def test_tiers_stay_inside_their_server():
    """With two servers of 4, a member talks across only to its counterpart, with a quarter of the bytes."""
    tasks, _, _ = run_collective("all_reduce", np.arange(8).reshape(1, 2, 4), "fluid")
    across = tasks.src // 4 != tasks.dst // 4
    assert (abs(tasks.src - tasks.dst)[across] == 4).all()
    assert tasks.size_bytes[across].sum() == pytest.approx(8 * all_reduce_bytes(1000.0 / 4, 2))


@pytest.mark.parametrize("steps", STEPS)
def test_groups_do_not_wait_for_each_other(steps):
    """A collective of several groups at once is the same as one of each."""
    tasks, first, last = run_collective("all_reduce", [[0, 1, 2], [5, 4, 3]], steps)
    graph = digraph(tasks)
    assert not nx.ancestors(graph, int(last[0, 0])) & set(first[1].tolist())
    assert sent_bytes(tasks) == pytest.approx(np.full(6, all_reduce_bytes(1000.0, 3)))


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("name", ["reduce_scatter", "all_gather", "all_reduce"])
def test_one_member_costs_nothing(name, steps):
    """A collective of one sends nothing and waits for nothing but its member."""
    tasks, _, _ = run_collective(name, [[0]], steps)
    assert tasks.transfers == 0
    assert digraph(tasks).number_of_edges() == 1
    assert ring_allreduce_tasks(1, 1e6, steps=steps).transfers == 0


def test_no_bytes_still_take_the_steps():
    """0 bytes are transfers of 0 bytes: the engine charges their latencies."""
    tasks = ring_allreduce_tasks(4, 0.0, steps="fluid")
    assert tasks.size_bytes.tolist() == [0.0] * 4
    assert tasks.latency_steps.tolist() == [6.0] * 4


def test_a_thousand_gpus_in_explicit_steps_are_lean():
    """1024 GPUs: 2 n (n - 1) = 2 095 104 transfers, at most 48 bytes of arrays for each."""
    tasks = ring_allreduce_tasks(1024, 100 * 2**20)
    assert tasks.transfers == 2_095_104
    arrays = [value for value in vars_of(tasks) if isinstance(value, np.ndarray)]
    assert sum(array.nbytes for array in arrays) <= 48 * tasks.transfers


def vars_of(tasks):
    return [getattr(tasks, field.name) for field in tasks.__attrs_attrs__]


def test_bad_input_is_refused():
    with pytest.raises(ConfigError, match=r"steps.*'explcit'.*did you mean 'explicit'"):
        ring_allreduce_tasks(4, 1.0, steps="explcit")
    with pytest.raises(SipmlError, match="size_bytes must be finite and not negative"):
        ring_allreduce_tasks(4, -1.0)


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("n", SIZES)
def test_never_below_the_bandwidth_bound(n, steps, flat):
    """Through the engine: not faster than 2 (n - 1) / n M / B, and on a uniform ring not slower."""
    tasks = ring_allreduce_tasks(n, 1e6, steps=steps)
    bound_us = 2 * (n - 1) / n * 1e6 / 1000
    total_us = simulate(tasks, flat(tasks, gbps=8.0)).total_us
    assert total_us >= bound_us * (1 - 1e-9)
    assert total_us == pytest.approx(bound_us)


@pytest.mark.parametrize("latency_us", [0.0, 0.7, 50.0])
@pytest.mark.parametrize("name", ["all_reduce", "reduce_scatter", "all_gather"])
@pytest.mark.parametrize("n", [2, 3, 8, 24])
def test_both_forms_agree_on_a_uniform_ring(n, name, latency_us, flat):
    """All ready at once, every pair alone at B: explicit steps and fluid within 1 %, latencies included."""
    times = []
    for steps in STEPS:
        tasks, _, _ = run_collective(name, [range(n)], steps, 1e5)
        times.append(simulate(tasks, flat(tasks, latency_us=latency_us)).total_us)
    assert times[0] == pytest.approx(times[1], rel=0.01)


@pytest.mark.parametrize("steps", STEPS)
def test_latency_is_paid_once_per_step(steps, flat):
    """0 bytes over 4 members at 1 us: 2 x 3 steps."""
    tasks = ring_allreduce_tasks(4, 0.0, steps=steps)
    assert simulate(tasks, flat(tasks, latency_us=1.0)).total_us == pytest.approx(6.0)


@pytest.mark.parametrize("steps", STEPS)
def test_tiers_take_the_time_of_each_phase(steps, flat):
    """2 servers of 4, M = 8000 bytes at 1000 bytes/us: 6 us scatter, 2 us across, 6 us gather."""
    tasks, _, _ = run_collective("all_reduce", np.arange(8).reshape(1, 2, 4), steps, 8000.0)
    assert simulate(tasks, flat(tasks)).total_us == pytest.approx(1 + 14 + 1)


def test_a_late_member_holds_up_only_what_needs_it(flat):
    """In explicit steps three of four members send their first chunk while the fourth still computes."""
    builder = TaskBuilder(4)
    ready = builder.tasks([[0, 1, 2, 3]], [[0.0, 0.0, 0.0, 100.0]], 0, 0)
    Rings(builder=builder, steps="explicit").all_reduce(np.arange(4, dtype=np.int32)[None], 4000.0, ready)
    tasks = builder.build()
    timeline = simulate(tasks, flat(tasks))
    first_step = timeline.end_us[tasks.compute_tasks :][:4]
    assert first_step == pytest.approx([1.0, 1.0, 1.0, 101.0])
    assert timeline.total_us == pytest.approx(100 + 6)
