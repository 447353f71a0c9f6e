"""Lowering: what travels, what waits for what, and that every byte of the plan is sent."""

import attrs
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sipml_core.engine.simulation import simulate
from sipml_core.errors import ConfigError
from sipml_core.lowering.collectives import all_reduce_bytes
from sipml_core.lowering.gradients import ring_devices
from sipml_core.lowering.grouptemplate import traffic_bytes
from sipml_core.lowering.synchronisation import replicas_in_server
from sipml_core.lowering.wholejob import lower
from sipml_core.model.balanced import Placement, PlacementLimits
from sipml_core.model.cluster import Cluster
from sipml_core.model.opgraph import Axis, Operand, Phase, Role
from sipml_core.model.plan import Plan
from sipml_core.model.taskgraph import BARRIER
from sipml_core.partition.partitioning import partition

B, U = Phase.BACKWARD, Phase.OPTIMIZER


def plan_of(mp=1, dp=1, **kwargs):
    return Plan(mp=mp, dp=dp, global_batch=dp * 8, **kwargs)


def lowered(placement, plan, *, gpu_speed=(), **kwargs):
    return lower(placement, plan, Cluster(gpus=plan.gpus, bandwidth_gbps=8.0, gpu_speed=gpu_speed), **kwargs)


def digraph(tasks):
    graph = nx.DiGraph()
    graph.add_nodes_from(range(tasks.nodes))
    before = np.repeat(np.arange(tasks.nodes), np.diff(tasks.succ_start))
    graph.add_edges_from(zip(before.tolist(), tasks.successors.tolist(), strict=True))
    return graph


def sends(tasks):
    """(source, destination, bytes) of each transfer, sorted."""
    return sorted(zip(tasks.src.tolist(), tasks.dst.tolist(), tasks.size_bytes.tolist(), strict=True))


def six_ops(hand):
    """a -> (b.0, b.1) -> c forward on two devices, then the gradient of b's parameter and its optimizer.

    b is cut in two: each part has half of a's 1000 elements, makes half of c's input, and holds its own
    half of the parameter w.
    """
    hand.tensor("x", 1000)
    hand.tensor("w", 500, role=Role.PARAMETER)
    hand.tensor("y", 1000)
    hand.tensor("dy", 1000)
    hand.tensor("dw", 500, role=Role.GRADIENT, parameter="w")
    hand.op("a", us=2.0, writes=["x"])
    hand.op("b", us=3.0, parts=2, reads=["x", "w"], writes=["y"])
    hand.op("c", us=4.0, reads=["y"], writes=["dy"])
    hand.op("wgrad", us=5.0, parts=2, phase=B, reads=["dy", "x"], writes=["dw"], follows="b")
    hand.op("update", us=1.0, parts=2, phase=U, reads=["w", "dw"], follows="b")
    for part in (0, 1):
        half, quarter = (500 * part, 500 * part + 500), (250 * part, 250 * part + 250)
        hand.edge("a.0", f"b.{part}", "x", half)
        hand.edge(f"b.{part}", "c.0", "y", half)
        hand.edge("c.0", f"wgrad.{part}", "dy", half)
        hand.edge("a.0", f"wgrad.{part}", "x", half)
        hand.shard(f"wgrad.{part}", "dw", quarter)
        hand.shard(f"update.{part}", "dw", quarter)
    return hand


def six_ops_placed(hand, **kwargs):
    return six_ops(hand).placed([0, 0, 1, 1, 0, 1, 0, 1], mp=2, **kwargs)


def test_six_ops_send_what_crosses_devices_once(hand):
    """x (for b.1 and wgrad.1 alike), y and dy cross: three transfers of 500 elements of 4 bytes."""
    tasks = lowered(six_ops_placed(hand), plan_of(mp=2))
    assert sends(tasks) == [(0, 1, 2000.0), (0, 1, 2000.0), (1, 0, 2000.0)]


def test_six_ops_take_the_time_worked_by_hand(hand, flat):
    """1000 bytes/us: a 0-2, x sent 2-4, b.0 2-5, y sent 5-7, b.1 4-7, c 7-11, dy sent 11-13, wgrad.0 13-18,
    wgrad.1 11-16, update.0 18-19, update.1 16-17."""
    tasks = lowered(six_ops_placed(hand), plan_of(mp=2))
    timeline = simulate(tasks, flat(tasks))
    assert timeline.end_us[:8].tolist() == [2.0, 5.0, 7.0, 11.0, 18.0, 16.0, 19.0, 17.0]
    assert timeline.total_us == 19.0


@pytest.mark.parametrize("ring_steps", ["explicit", "fluid"])
def test_two_groups_synchronise_each_half_with_its_counterpart(hand, flat, ring_steps):
    """With dp = 2, device d of both groups exchanges its 250 x 4 bytes: 1 us more on each, at once."""
    plan = plan_of(mp=2, dp=2, ring_steps=ring_steps)
    tasks = lowered(six_ops_placed(hand), plan)
    across = [(s, d, size) for s, d, size in sends(tasks) if s // 2 != d // 2]
    assert {(s, d) for s, d, _ in across} == {(0, 2), (2, 0), (1, 3), (3, 1)}
    assert sum(size for *_, size in across) == 4 * all_reduce_bytes(1000.0, 2)
    assert simulate(tasks, flat(tasks)).total_us == 20.0


def test_groups_are_copies(hand):
    """Tasks and activation transfers of group g are those of group 0 on GPUs 2 g and 2 g + 1."""
    tasks = lowered(six_ops_placed(hand), plan_of(mp=2, dp=3))
    work = tasks.gpu != BARRIER
    of_group = tasks.gpu[work].reshape(-1, 3)
    assert (of_group == of_group[:, :1] + np.array([0, 2, 4])).all()
    assert (np.ptp(tasks.duration_us[work].reshape(-1, 3), axis=1) == 0).all()


def boxes_case(hand, *boxes):
    """One producer on device 0, one consumer per box on device 1."""
    hand.tensor("t", 100, 10)
    hand.op("a", writes=["t"])
    for number, box in enumerate(boxes):
        hand.op(f"c{number}", reads=["t"])
        hand.edge("a.0", f"c{number}.0", "t", *box)
    return hand.placed([0] + [1] * len(boxes), mp=2)


@pytest.mark.parametrize(
    ("boxes", "elements"),
    [
        ([((0, 50), (0, 10)), ((0, 50), (0, 10))], [500]),
        ([((0, 100), (0, 10)), ((10, 20), (3, 4))], [1000]),
        ([((0, 50), (0, 10)), ((50, 100), (0, 10))], [1000]),
        ([((0, 52), (0, 10)), ((48, 100), (0, 10))], [1000]),
        ([((0, 10), (0, 10)), ((90, 100), (0, 10))], [100, 100]),
        ([((0, 10), (0, 10)), ((90, 100), (0, 10)), ((2, 4), (0, 5))], [100, 100]),
        ([((0, 10), (0, 10)), ((90, 100), (0, 10)), ((0, 10), (0, 10))], [100, 100]),
    ],
    ids=["equal", "nested", "adjacent", "halo", "apart", "apart and nested", "apart and equal"],
)
def test_boxes_for_one_device_are_sent_once(hand, boxes, elements):
    """The bounding box if it is no larger than the boxes together, else each box that lies in no other."""
    tasks = lowered(boxes_case(hand, *boxes), plan_of(mp=2))
    assert sorted(tasks.size_bytes / 4) == elements
    graph = digraph(tasks)
    for consumer in range(1, len(boxes) + 1):
        transfers = [n for n in graph.predecessors(consumer) if n >= tasks.compute_tasks]
        assert len(transfers) == 1
        assert tasks.size_bytes[transfers[0] - tasks.compute_tasks] / 4 in elements


def test_two_devices_get_a_copy_each(hand):
    """The same tensor to two devices is two transfers, from its source to each."""
    hand.tensor("t", 100)
    hand.op("a", writes=["t"])
    hand.op("b", parts=3, reads=["t"])
    for part in range(3):
        hand.edge("a.0", f"b.{part}", "t", (0, 100))
    tasks = lowered(hand.placed([0, 0, 1, 2], mp=3), plan_of(mp=3))
    assert sends(tasks) == [(0, 1, 400.0), (0, 2, 400.0)]


def test_a_transfer_has_the_priority_of_its_first_consumer(hand):
    """Of b (op 1) and d (op 3), which share the transfer, b comes first."""
    hand.tensor("t", 100)
    for name in ("a", "b", "c", "d"):
        hand.op(name, reads=["t"] if name in "bd" else [], writes=["t"] if name == "a" else [])
    hand.edge("a.0", "d.0", "t", (0, 100))
    hand.edge("a.0", "b.0", "t", (0, 100))
    tasks = lowered(hand.placed([0, 1, 0, 1], mp=2), plan_of(mp=2))
    assert tasks.priority[tasks.compute_tasks :].tolist() == [1]
    assert tasks.priority[:4].tolist() == [0, 1, 2, 3]


def replicated(hand, size=300, holders=(0, 2), devices=4, **kwargs):
    """A parameter of `size` elements, whole on each of `holders`: a part of its gradient made on each."""
    parts = len(holders)
    hand.tensor("w", size, role=Role.PARAMETER)
    hand.tensor("dw", size, role=Role.GRADIENT, parameter="w")
    hand.op("f", parts=parts, reads=["w"])
    hand.op("wgrad", parts=parts, phase=B, writes=["dw"], follows="f")
    hand.op("update", parts=parts, phase=U, reads=["w", "dw"], follows="f")
    for part in range(parts):
        hand.shard(f"wgrad.{part}", "dw", (0, size))
        hand.shard(f"update.{part}", "dw", (0, size))
    return hand.placed(list(holders) * 3, mp=devices, **kwargs)


@pytest.mark.parametrize("ring_steps", ["explicit", "fluid"])
@pytest.mark.parametrize("dp", [1, 2, 3])
def test_a_replicated_parameter_is_synchronised_over_holders_and_groups(hand, dp, ring_steps):
    """n holders x l groups of M bytes: each sends 2 M (n l - 1) / (n l)."""
    tasks = lowered(replicated(hand), plan_of(mp=4, dp=dp, ring_steps=ring_steps))
    sent = np.bincount(tasks.src, weights=tasks.size_bytes, minlength=4 * dp).reshape(dp, 4)
    assert sent[:, [0, 2]] == pytest.approx(np.full((dp, 2), all_reduce_bytes(1200.0, 2 * dp)))
    assert (sent[:, [1, 3]] == 0).all()


def test_holders_out_of_range_ring_over_the_whole_group(hand):
    """Devices 0 and 2 of 4 may not talk at range 1, so all four pass the gradient on."""
    limits = PlacementLimits(devices=4, range_hops=1)
    assert ring_devices((0, 2), limits) == (0, 1, 2, 3)
    assert ring_devices((1, 2), limits) == (1, 2)
    assert ring_devices((0, 3), limits) == (0, 3)
    tasks = lowered(replicated(hand, range_hops=1), plan_of(mp=4, dp=2))
    sent = np.bincount(tasks.src, weights=tasks.size_bytes, minlength=8)
    assert sent == pytest.approx(np.full(8, all_reduce_bytes(1200.0, 8)))
    inside = tasks.src // 4 == tasks.dst // 4
    assert all(limits.allows(s % 4, d % 4) for s, d in zip(tasks.src, tasks.dst, strict=True))
    assert ((tasks.src + 4 == tasks.dst) | (tasks.dst + 4 == tasks.src))[~inside].all()


def test_every_optimizer_waits_for_every_holder_of_every_group(hand):
    """An update needs the whole sum: all gradient parts of all groups come before it."""
    tasks = lowered(replicated(hand), plan_of(mp=4, dp=2, ring_steps="explicit"))
    graph = digraph(tasks)
    gradients = {4, 5, 6, 7}  # of sub-ops 2 and 3 in two groups
    for update in (8, 9, 10, 11):
        assert gradients <= nx.ancestors(graph, update)


def test_a_device_that_only_passes_on_waits_for_its_group(hand):
    """In the ring over all four devices nothing is sent before a gradient of that group is made."""
    tasks = lowered(replicated(hand, range_hops=1), plan_of(mp=4, ring_steps="explicit"))
    graph = digraph(tasks)
    for transfer in range(tasks.compute_tasks, tasks.nodes):
        assert nx.ancestors(graph, transfer) & {2, 3}


def shared(hand):
    """w is used by f on device 0 and g on device 1: one gradient of 400 bytes."""
    hand.tensor("w", 100, role=Role.PARAMETER)
    for name in ("f", "g"):
        hand.tensor(f"d{name}", 100, role=Role.GRADIENT, parameter="w")
    for name in ("f", "g"):
        hand.op(name, reads=["w"])
    for name in ("f", "g"):
        hand.op(f"{name}_weight", phase=B, writes=[f"d{name}"], follows=name)
    for name in ("f", "g"):
        hand.op(f"{name}_update", phase=U, reads=["w", "df", "dg"], follows=name)
    for name in ("f", "g"):
        hand.shard(f"{name}_weight.0", f"d{name}", (0, 100))
        hand.shard(f"{name}_update.0", "df", (0, 100))
        hand.shard(f"{name}_update.0", "dg", (0, 100))
    return hand.placed([0, 1] * 3, mp=2)


def test_gradients_of_a_shared_parameter_are_summed_together(hand):
    """400 bytes on 2 devices x 3 groups."""
    tasks = lowered(shared(hand), plan_of(mp=2, dp=3))
    assert tasks.size_bytes.sum() == pytest.approx(6 * all_reduce_bytes(400.0, 6))


def in_full(placement, *ops):
    """The placement with these ops done in full by every device."""
    graph = placement.graph
    mask = np.isin([op.name for op in graph.graph.ops], ops)
    return attrs.evolve(placement, graph=attrs.evolve(graph, duplicated=mask))


@pytest.mark.parametrize("ring_steps", ["explicit", "fluid"])
@pytest.mark.parametrize("dp", [1, 2, 3])
def test_gradients_of_a_duplicated_op_are_summed_over_groups_alone(hand, dp, ring_steps):
    """The whole M bytes are on each of 4 devices, also on those without a part: each sends
    2 M (l - 1) / l to its counterparts, and nothing inside the group."""
    placement = in_full(replicated(hand), "f", "wgrad", "update")
    plan = plan_of(mp=4, dp=dp, ring_steps=ring_steps)
    tasks = lowered(placement, plan)
    sent = np.bincount(tasks.src, weights=tasks.size_bytes, minlength=4 * dp)
    assert sent == pytest.approx(np.full(4 * dp, all_reduce_bytes(1200.0, dp)))
    assert (tasks.src % 4 == tasks.dst % 4).all()
    assert traffic_bytes(placement, plan).gradients == pytest.approx(sent.sum())


def test_an_update_of_a_duplicated_op_waits_for_its_own_device_in_all_groups(hand):
    """Sub-ops 2 and 3 make dw on devices 0 and 2 as tasks 4 and 6, and 5 and 7 of group 1; sub-ops 4 and 5
    update: that on device 0 waits for 4 and 5, not for 6 and 7."""
    tasks = lowered(in_full(replicated(hand), "f", "wgrad", "update"), plan_of(mp=4, dp=2))
    graph = digraph(tasks)
    assert nx.ancestors(graph, 8) & {4, 5, 6, 7} == {4, 5}
    assert nx.ancestors(graph, 11) & {4, 5, 6, 7} == {6, 7}


def test_a_device_without_a_part_sends_its_copy_when_the_makers_are_done(hand):
    """Devices 1 and 3 did the same at the same time: they send after both makers of their group."""
    tasks = lowered(
        in_full(replicated(hand), "f", "wgrad", "update"), plan_of(mp=4, dp=2, ring_steps="explicit")
    )
    graph = digraph(tasks)
    for transfer in range(tasks.transfers):
        source = tasks.src[transfer]
        makers = {4, 6} if source < 4 else {5, 7}
        if source % 2:
            assert makers <= nx.ancestors(graph, tasks.compute_tasks + transfer)


def test_a_parameter_that_only_some_users_duplicate_is_summed_over_all(hand):
    """f is duplicated and g divided, both use w: g's parts have to be added up in the group as before."""
    plain = shared(hand)
    plan = plan_of(mp=2, dp=3)
    assert sends(lowered(in_full(plain, "f", "f_weight", "f_update"), plan)) == sends(lowered(plain, plan))


@pytest.mark.parametrize(("devices", "total_us"), [([0, 1, 2], 30.0), ([0, 0, 1], 20.0), ([2, 2, 2], 10.0)])
def test_a_device_does_a_duplicated_op_once(hand, devices, total_us):
    """Three parts of an op of 10 us, on as many devices as there are."""
    hand.tensor("t", 30)
    hand.op("a", us=10.0, parts=3, writes=["t"])
    tasks = lowered(in_full(hand.placed(devices, mp=3), "a"), plan_of(mp=3))
    assert tasks.duration_us.sum() == pytest.approx(total_us)
    busy = np.bincount(tasks.gpu[tasks.gpu != BARRIER], tasks.duration_us[tasks.gpu != BARRIER])
    assert busy[busy > 0] == pytest.approx(10.0)


@pytest.mark.parametrize(("bucket_bytes", "sizes"), [(1, [400] * 4), (800, [800, 800]), (1e9, [1600])])
def test_gradients_are_collected_into_buckets(hand, bucket_bytes, sizes):
    """Four gradients of 400 bytes on two replicas, in the order of the backward pass."""
    tasks = lowered(hand.layers(), plan_of(dp=2, bucket_bytes=bucket_bytes))
    by_priority = np.argsort(tasks.priority[tasks.compute_tasks :], kind="stable")
    assert tasks.size_bytes[by_priority].tolist() == [size for size in sizes for _ in range(2)]


def test_synchronisation_overlaps_with_the_backward_pass(hand, flat):
    """Each 10 us backward op makes 10 kB, exchanged in 10 us: only the last bucket is seen.

    4 forward and 4 backward ops of 10 us, the last exchange, and the last of four 1 us updates.
    """
    tasks = lowered(hand.layers(size=2500), plan_of(dp=2, bucket_bytes=1))
    assert simulate(tasks, flat(tasks)).total_us == pytest.approx(80 + 10 + 1)


def test_an_optimizer_waits_for_its_own_bucket_only(hand):
    """The update of layer 3, whose gradient is made first, does not wait for the gradients of others.

    Sub-op 11 is task 22 of the first of two groups; sub-op 4 made its gradient, 5 to 7 the others.
    """
    tasks = lowered(hand.layers(), plan_of(dp=2, bucket_bytes=1))
    before = nx.ancestors(digraph(tasks), 22)
    assert {8, 9} <= before
    assert not before & set(range(10, 16))


def test_sync_goes_after_activations(hand):
    """Every bucket's priority is behind that of every activation transfer of its iteration."""
    tasks = lowered(six_ops_placed(hand), plan_of(mp=2, dp=2, iterations=2))
    priority = tasks.priority[tasks.compute_tasks :]
    across = tasks.src // 2 != tasks.dst // 2
    first = np.arange(tasks.transfers) < tasks.transfers // 2
    assert priority[across & first].min() > priority[~across & first].max()
    assert priority[~first].min() > priority[first].max()


def test_buckets_go_in_the_order_in_which_they_are_complete(hand):
    """Layers 3 and 0 on device 1, 2 and 1 on device 0: the bucket of device 0 is complete first."""
    placement = hand.layers()
    placement = attrs.evolve(
        placement,
        limits=PlacementLimits(devices=2),
        device=[1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1],
    )
    tasks = lowered(placement, plan_of(mp=2, dp=2))
    across = tasks.src // 2 != tasks.dst // 2
    priority = tasks.priority[tasks.compute_tasks :]
    assert priority[across & (tasks.src % 2 == 0)].max() < priority[across & (tasks.src % 2 == 1)].min()


def test_iterations_are_chained_by_the_optimizer(hand, flat):
    """The next forward op of a layer waits for the update of that layer, and every iteration has its mark."""
    tasks = lowered(hand.layers(), plan_of(iterations=3))
    graph = digraph(tasks)
    assert len(tasks.marks) == 3
    per_iteration = tasks.compute_tasks // 3
    for k in range(4):
        assert 8 + k in nx.ancestors(graph, per_iteration + k)
    timeline = simulate(tasks, flat(tasks))
    assert np.diff(timeline.snapshot_us[:3]) == pytest.approx([84.0, 84.0])
    assert timeline.total_us == pytest.approx(3 * 84.0)


def test_a_reader_without_an_optimizer_waits_for_the_one_elsewhere(hand):
    """w is read on devices 0 and 1 and updated on 0: in the next iteration both wait for that update."""
    hand.tensor("w", 100, role=Role.PARAMETER)
    hand.tensor("dw", 100, role=Role.GRADIENT, parameter="w")
    hand.op("f", reads=["w"])
    hand.op("g", reads=["w"])
    hand.op("weight", phase=B, writes=["dw"], follows="f")
    hand.op("update", phase=U, reads=["w", "dw"], follows="f")
    hand.shard("weight.0", "dw", (0, 100))
    hand.shard("update.0", "dw", (0, 100))
    tasks = lowered(hand.placed([0, 1, 0, 0], mp=2), plan_of(mp=2, iterations=2))
    graph, second = digraph(tasks), tasks.compute_tasks // 2
    assert 3 in graph.predecessors(second)
    assert 3 in graph.predecessors(second + 1)


def test_ops_without_parameters_do_not_run_ahead(hand, flat):
    """Two iterations of a chain that nothing else ties together follow each other on each GPU."""
    hand.tensor("t", 1)
    hand.op("a", us=5.0, writes=["t"])
    hand.op("b", us=20.0, reads=["t"])
    hand.edge("a.0", "b.0", "t", (0, 1))
    tasks = lowered(hand.placed([0, 0], mp=1), plan_of(iterations=2))
    assert simulate(tasks, flat(tasks)).start_us[3] == 25.0


def test_a_mark_comes_after_all_of_its_iteration(hand):
    """Whatever fires before mark k + 1 and not before mark k is iteration k + 1: nothing is left over."""
    plan = plan_of(mp=2, dp=2, iterations=2, ring_steps="explicit")
    tasks = lowered(six_ops_placed(hand), plan)
    graph = digraph(tasks)
    first, second = (nx.ancestors(graph, int(mark)) for mark in tasks.marks)
    assert len(second) == tasks.nodes - 1
    assert first < second
    assert 2 * len(first) + 2 == tasks.nodes


def test_order_relabels_gpus(hand, flat):
    """Position p is played by GPU order[p]; on a flat fabric nothing else changes."""
    placement, plan = six_ops_placed(hand), plan_of(mp=2, dp=2)
    order = np.array([3, 1, 0, 2], dtype=np.int32)
    plain, moved = lowered(placement, plan), lowered(placement, plan, order=order)
    assert np.array_equal(order[plain.src], moved.src)
    assert np.array_equal(np.where(plain.gpu == BARRIER, BARRIER, order[plain.gpu]), moved.gpu)
    assert simulate(plain, flat(plain)).total_us == simulate(moved, flat(moved)).total_us


def test_servers_synchronise_inside_first(hand):
    """dp = 8 in servers of 4: one exchange between servers per member, of a quarter of the gradient."""
    tasks = lowered(hand.layers(count=1), plan_of(dp=8), server_gpus=4)
    across = tasks.src // 4 != tasks.dst // 4
    assert (np.abs(tasks.src - tasks.dst)[across] == 4).all()
    assert tasks.size_bytes[across].tolist() == [all_reduce_bytes(100.0, 2)] * 8
    assert np.bincount(tasks.src, weights=tasks.size_bytes) == pytest.approx(
        np.full(8, all_reduce_bytes(400.0, 8))
    )


def test_groups_that_fill_servers_have_one_tier(hand):
    """Where a group is a server or more, counterparts are in different servers: the ring stays flat."""
    placement, plan = replicated(hand), plan_of(mp=4, dp=2)
    flat_ring, tiers = lowered(placement, plan), lowered(placement, plan, server_gpus=2)
    assert sends(flat_ring) == sends(tiers)


def test_one_slow_gpu_takes_longer_for_its_tasks_alone(hand, flat):
    """GPU 1 at half speed: its tasks take twice as long, and the iteration is bound by it."""
    placement, plan = six_ops_placed(hand), plan_of(mp=2, dp=2)
    even, slow = lowered(placement, plan), lowered(placement, plan, gpu_speed={1: 0.5})
    factor = np.where(even.gpu == 1, 2.0, 1.0)
    assert slow.duration_us == pytest.approx(even.duration_us * factor)
    assert simulate(slow, flat(slow)).total_us > simulate(even, flat(even)).total_us


def halves(hand):
    """Four layers cut into two segments by `checkpoints` (sizes 10 x 4 bytes each), on one GPU."""
    return hand.layers(), plan_of(recompute=True)


def test_recomputation_runs_dropped_forward_ops_again(hand, flat):
    """Only a1, which crosses, is kept of segment (f0, f1): f0 alone runs again, for b0: 10 us more."""
    placement, plan = halves(hand)
    again, once = lowered(placement, plan), lowered(placement, attrs.evolve(plan, recompute=False))
    assert again.duration_us.sum() == pytest.approx(once.duration_us.sum() + 10.0)
    assert simulate(again, flat(again)).total_us == pytest.approx(84.0 + 10.0)


def test_a_second_run_comes_just_before_its_backward_ops(hand, flat):
    """Segment (f0, f1) is run again after the backward ops of the segment above, not as soon as it could."""
    placement, plan = halves(hand)
    tasks = lowered(placement, plan)
    timeline = simulate(tasks, flat(tasks))
    again, b0, b2 = 12, 7, 5
    assert timeline.start_us[again] >= timeline.end_us[b2]
    assert timeline.start_us[b0] >= timeline.end_us[again]
    graph = digraph(tasks)
    assert b2 in nx.ancestors(graph, again)
    assert again in nx.ancestors(graph, b0)


def test_what_is_kept_is_read_from_the_first_run(hand):
    """f1 makes a1, kept for f2, and m1, made again for b1: b1 waits for both runs of f1."""
    hand.tensor("m1", 10)
    placement = hand.layers()
    hand.ops[1] = attrs.evolve(hand.ops[1], writes=(*hand.ops[1].writes, Operand("m1", (Axis(None),))))
    hand.ops[6] = attrs.evolve(hand.ops[6], reads=(*hand.ops[6].reads, Operand("m1", (Axis(None),))))
    hand.edge("f1.0", "b1.0", "m1", (0, 10))
    tasks = lowered(hand.placed(placement.device, mp=1), plan_of(recompute=True))
    again = 12
    assert set(digraph(tasks).predecessors(6)) == {1, 5, again}


STRATEGIES = st.fixed_dictionaries(
    {
        "mp": st.integers(1, 4),
        "dp": st.integers(1, 3),
        "ring_steps": st.sampled_from(["explicit", "fluid"]),
        "recompute": st.booleans(),
        "iterations": st.integers(1, 2),
        "bucket_bytes": st.sampled_from([1.0, 100.0, 1e9]),
    }
)


def random_placement(graph, gpu, mp, dims, seed):
    """`graph` cut along `dims` and every sub-op, followers too, on any device."""
    layout = {f"f{k}": dim for k, dim in enumerate(dims)}
    cluster = Cluster(gpus=mp, bandwidth_gbps=8.0)
    balanced = partition(graph, gpu, cluster, mp=mp, tau_us=10.0, layout=layout)
    device = np.random.default_rng(seed).integers(0, mp, balanced.subops)
    return Placement(graph=balanced, limits=PlacementLimits(devices=mp), device=device)


def needed_activations(placement):
    """Bytes that must, and bytes that need not more than, cross devices: element by element."""
    graph, device = placement.graph, placement.device
    masks, most = {}, 0
    for src, dst, tensor, lo, hi in zip(
        graph.edge_src, graph.edge_dst, graph.edge_tensor, graph.edge_lo, graph.edge_hi, strict=True
    ):
        if device[src] != device[dst]:
            shape = graph.graph.tensors[tensor].shape
            mask = masks.setdefault((src, tensor, device[dst]), np.zeros(shape, dtype=bool))
            box = tuple(slice(a, b) for a, b in zip(lo, hi, strict=True))[: len(shape)]
            mask[box] = True
            most += 4 * mask[box].size
    return 4 * sum(int(mask.sum()) for mask in masks.values()), most


def gradient_traffic(placement, dp):
    """2 M (n l - 1) for each gradient box on n devices of l groups, box by box."""
    graph, total = placement.graph, 0.0
    phase = [graph.graph.ops[op].phase for op in graph.subop_op]
    shards = list(zip(graph.shard_subop, graph.shard_tensor, graph.shard_lo, graph.shard_hi, strict=True))
    made = {(t, *lo, *hi): (lo, hi) for s, t, lo, hi in shards if phase[s] is B}
    for (tensor, *_), (lo, hi) in made.items():
        holders = {
            placement.device[s]
            for s, t, other_lo, other_hi in shards
            if t == tensor and (np.maximum(lo, other_lo) < np.minimum(hi, other_hi)).all()
        }
        total += 2 * 4 * np.prod(hi - lo) * (len(holders) * dp - 1)
    return total


@settings(max_examples=60, deadline=None)
@given(
    drawn=STRATEGIES, dims=st.lists(st.sampled_from("nio"), min_size=3, max_size=3), seed=st.integers(0, 99)
)
def test_laws_hold_for_any_strategy_and_placement(two_layers, gpu, drawn, dims, seed):
    """Acyclic, all ends at the last mark, and the bytes are those of the plan, element by element."""
    plan = plan_of(**drawn)
    placement = random_placement(two_layers(layers=3), gpu, plan.mp, dims, seed)
    tasks, traffic = lowered(placement, plan), traffic_bytes(placement, plan)
    graph = digraph(tasks)
    assert nx.is_directed_acyclic_graph(graph)
    assert len(tasks.marks) == plan.iterations
    assert len(nx.ancestors(graph, int(tasks.marks[-1]))) == tasks.nodes - 1
    assert tasks.size_bytes.sum() == pytest.approx(plan.iterations * traffic.total)
    assert traffic.gradients == pytest.approx(gradient_traffic(placement, plan.dp))
    if not plan.recompute:
        least, most = needed_activations(placement)
        assert plan.dp * least <= traffic.activations <= plan.dp * most


@settings(max_examples=20, deadline=None)
@given(
    drawn=STRATEGIES, dims=st.lists(st.sampled_from("nio"), min_size=3, max_size=3), seed=st.integers(0, 99)
)
def test_every_job_runs_to_its_end_not_before_its_bounds(two_layers, gpu, flat, drawn, dims, seed):
    """Through the engine: no earlier than the busiest GPU's work, nor the busiest port's bytes / B."""
    plan = plan_of(**drawn)
    placement = random_placement(two_layers(layers=3), gpu, plan.mp, dims, seed)
    tasks = lowered(placement, plan)
    work = tasks.gpu != BARRIER
    busiest_us = np.bincount(tasks.gpu[work], weights=tasks.duration_us[work]).max()
    ports = [
        np.bincount(ends, weights=tasks.size_bytes, minlength=1).max() for ends in (tasks.src, tasks.dst)
    ]
    total_us = simulate(tasks, flat(tasks)).total_us
    assert total_us >= max(busiest_us, max(ports) / 1000) * (1 - 1e-9)


@settings(max_examples=20, deadline=None)
@given(
    drawn=STRATEGIES, dims=st.lists(st.sampled_from("nio"), min_size=3, max_size=3), seed=st.integers(0, 99)
)
def test_the_forward_pass_reads_what_the_plan_says(two_layers, gpu, drawn, dims, seed):
    """Every data edge of the balanced graph is an order in the task graph, on each replica."""
    plan = attrs.evolve(plan_of(**drawn), recompute=False, iterations=1)
    placement = random_placement(two_layers(layers=3), gpu, plan.mp, dims, seed)
    graph = digraph(lowered(placement, plan))
    for src, dst in zip(placement.graph.edge_src, placement.graph.edge_dst, strict=True):
        for group in range(plan.dp):
            first, second = int(src) * plan.dp + group, int(dst) * plan.dp + group
            steps = nx.shortest_path_length(graph, first, second)
            assert steps == (1 if placement.device[src] == placement.device[dst] else 2)


def test_the_same_plan_gives_the_same_bytes(two_layers, gpu):
    """Two lowerings agree in every array."""
    plan = plan_of(mp=3, dp=2, iterations=2, recompute=True, ring_steps="explicit")
    placement = random_placement(two_layers(layers=3), gpu, 3, "nio", 1)
    one, other = lowered(placement, plan), lowered(placement, plan)
    for field in attrs.fields(type(one)):
        a, b = getattr(one, field.name), getattr(other, field.name)
        assert a.tobytes() == b.tobytes() if isinstance(a, np.ndarray) else a == b


def test_a_thousand_gpus_are_lowered_lean(two_layers, gpu):
    """1024 GPUs, every one: at most 64 bytes of arrays per node, dependencies not counted."""
    plan = Plan(mp=8, dp=128, global_batch=1024)
    graph = two_layers(samples=8, inputs=64, hidden=64, outputs=64, layers=100)
    placement = random_placement(graph, gpu, 8, "oi" * 50, 0)
    tasks = lowered(placement, plan)
    assert set(np.unique(tasks.gpu)) == {BARRIER, *range(1024)}
    arrays = [getattr(tasks, f.name) for f in attrs.fields(type(tasks))]
    size = sum(a.nbytes for a in arrays if isinstance(a, np.ndarray)) - tasks.successors.nbytes
    assert size <= 64 * tasks.nodes


def test_bad_input_is_refused(hand):
    placement, plan = six_ops_placed(hand), plan_of(mp=2, dp=3)
    with pytest.raises(ConfigError, match="placement is for mp=2, pp=1; the strategy has mp=1, pp=1"):
        lowered(placement, plan_of(dp=2))
    with pytest.raises(ConfigError, match=r"mp \* dp must equal the cluster's 4 GPUs, got 2 \* 3"):
        lower(placement, plan, Cluster(gpus=4, bandwidth_gbps=8.0))
    with pytest.raises(ConfigError, match=r"permutation of 0\.\.5"):
        lowered(placement, plan, order=np.array([0, 1, 2, 3, 4, 4], dtype=np.int32))
    with pytest.raises(ConfigError, match="3 groups of mp=2 do not fill servers of 4 GPUs"):
        lowered(placement, plan, server_gpus=4)
    with pytest.raises(ConfigError, match="server_gpus must be at least 1, got 0"):
        lowered(placement, plan, server_gpus=0)
    with pytest.raises(ConfigError, match=r"gpu_speed names GPUs 0\.\.5, got 6 = 0\.5"):
        lowered(placement, plan, gpu_speed={6: 0.5})
    with pytest.raises(ConfigError, match=r"GPU 0 a speed from 0\.001 to 1000, got 0"):
        lowered(placement, plan, gpu_speed={0: 0})


@pytest.mark.parametrize(
    ("mp", "dp", "server", "fits"),
    [
        (1, 16, 8, True),
        (2, 8, 8, True),
        (1, 12, 8, False),
        (3, 8, 8, False),
        (8, 4, 8, False),
        (16, 4, 8, False),
    ],
)
def test_two_tiers_fit_where_servers_hold_whole_groups(mp, dp, server, fits):
    """Two groups or more in a server, no group across servers, no server half full."""
    assert (replicas_in_server(plan_of(mp=mp, dp=dp), server) > 1) is fits
