"""Chains along the group: what crosses each segment, and that everybody still gets what it needs."""

import networkx as nx
import numpy as np
import pytest

from sipml_core.collectives import EXCHANGES
from sipml_core.engine.simulation import simulate
from sipml_core.gpus import V100
from sipml_core.lowering.grouptasks import group_tasks
from sipml_core.lowering.treesteps import Trees
from sipml_core.lowering.wholejob import lower
from sipml_core.model.balanced import PlacementLimits
from sipml_core.model.cluster import Cluster
from sipml_core.model.fabric import Fabric
from sipml_core.model.groupshape import GroupShape
from sipml_core.model.network import Network
from sipml_core.model.plan import Plan
from sipml_core.model.routes import Routes
from sipml_core.partition.layouts import fixed_layout
from sipml_core.partition.partitioning import partition
from sipml_core.placement.algorithm1 import Algorithm1
from sipml_core.workloads import Gpt

WHOLE = (0, 1000)


TREES = {exchange.name: exchange(None) for exchange in EXCHANGES}


def trees(exchange, devices, *tiers, relays=True):
    shape = GroupShape.of(devices=devices, tiers=tiers)
    return Trees(parents=TREES[exchange].parents(shape), relays=relays)


def lowered(placement, exchange, *tiers, relays=True, **kwargs):
    mp = placement.limits.devices
    plan = Plan(mp=mp, dp=1, global_batch=8, exchange=exchange, **kwargs)
    way = trees(exchange, mp, *tiers, relays=relays)
    return lower(placement, plan, Cluster(gpus=mp, bandwidth_gbps=8.0), trees=way)


def sends(tasks):
    return sorted(zip(tasks.src.tolist(), tasks.dst.tolist(), tasks.size_bytes.tolist(), strict=True))


def digraph(tasks):
    graph = nx.DiGraph()
    graph.add_nodes_from(range(tasks.nodes))
    before = np.repeat(np.arange(tasks.nodes), np.diff(tasks.succ_start))
    graph.add_edges_from(zip(before.tolist(), tasks.successors.tolist(), strict=True))
    return graph


def transfer(tasks, src, dst):
    (found,) = np.flatnonzero((tasks.src == src) & (tasks.dst == dst))
    return int(tasks.compute_tasks + found)


def crossed_bytes(tasks, devices):
    """Bytes over each segment of the line, to the right and to the left. [2, devices - 1]"""
    bytes_ = np.zeros((2, devices - 1))
    for src, dst, size in sends(tasks):
        bytes_[int(dst < src), min(src, dst) : max(src, dst)] += size
    return bytes_


def one_for_three(hand):
    """a on device 1 makes x, and b.0, b.1, b.2 on devices 0, 2, 3 need all of it."""
    hand.tensor("x", 1000)
    hand.op("a", us=1.0, writes=["x"])
    hand.op("b", us=1.0, parts=3, reads=["x"])
    for part in range(3):
        hand.edge("a.0", f"b.{part}", "x", WHOLE)
    return hand.placed([1, 0, 2, 3], mp=4)


def four_for_one(hand, devices=(0, 1, 2, 3), user=1):
    """Each part of a makes a part of the sum x, and b on device 1 needs the sum."""
    hand.tensor("x", 1000)
    hand.op("a", us=1.0, parts=len(devices), writes=["x"])
    hand.op("b", us=1.0, reads=["x"])
    for part in range(len(devices)):
        hand.edge(f"a.{part}", "b.0", "x", WHOLE)
    return hand.placed([*devices, user], mp=4)


def test_what_many_need_is_passed_on(hand):
    """1 -> 0 to the left, 1 -> 2 -> 3 to the right: each segment once."""
    placement = one_for_three(hand)
    assert sends(lowered(placement, "direct")) == [(1, 0, 4000.0), (1, 2, 4000.0), (1, 3, 4000.0)]
    tasks = lowered(placement, "chain")
    assert sends(tasks) == [(1, 0, 4000.0), (1, 2, 4000.0), (2, 3, 4000.0)]
    graph = digraph(tasks)
    assert list(graph.predecessors(transfer(tasks, 2, 3))) == [transfer(tasks, 1, 2)]
    assert list(graph.predecessors(transfer(tasks, 1, 2))) == [0]
    assert set(graph.predecessors(3)) == {transfer(tasks, 2, 3)}
    assert set(graph.predecessors(2)) == {transfer(tasks, 1, 2)}


def test_parts_of_a_sum_are_added_up_on_the_way(hand):
    """0 -> 1 from the left, 3 -> 2 -> 1 from the right; 2 sends when it has both 3's part and its own."""
    placement = four_for_one(hand)
    assert [send[:2] for send in sends(lowered(placement, "direct"))] == [(0, 1), (2, 1), (3, 1)]
    tasks = lowered(placement, "chain")
    assert [send[:2] for send in sends(tasks)] == [(0, 1), (2, 1), (3, 2)]
    graph = digraph(tasks)
    assert set(graph.predecessors(transfer(tasks, 2, 1))) == {2, transfer(tasks, 3, 2)}
    assert set(graph.predecessors(4)) == {1, transfer(tasks, 0, 1), transfer(tasks, 2, 1)}


def test_parts_on_one_device_leave_together(hand):
    """Two parts on device 3: one hop, when both are made."""
    tasks = lowered(four_for_one(hand, devices=(3, 2, 3)), "chain")
    assert [send[:2] for send in sends(tasks)] == [(2, 1), (3, 2)]
    assert set(digraph(tasks).predecessors(transfer(tasks, 3, 2))) == {0, 2}


def links_between_neighbours(tasks, gbps):
    """A link of its own for each ordered pair."""
    gpus = tasks.gpus

    def route(src, dst):
        links = (np.asarray(src, dtype=np.int64) * gpus + dst)[:, None]
        return Routes(links=links, latency_us=np.zeros(len(links)))

    return Network.of(Fabric(gpus=gpus, link_gbps=np.full(gpus**2, gbps), route=route), tasks)


def everybody_to_everybody(hand, devices, box):
    """Each device makes a part of x, or of its sum, and each needs `box(maker, user)` of it."""
    hand.tensor("x", 1000)
    hand.op("a", us=0.0, parts=devices, writes=["x"])
    hand.op("b", us=0.0, parts=devices, reads=["x"])
    for maker in range(devices):
        for user in range(devices):
            hand.edge(f"a.{maker}", f"b.{user}", "x", box(maker, user))
    return hand.placed([*range(devices), *range(devices)], mp=devices)


@pytest.mark.parametrize("devices", [2, 4, 5, 10])
@pytest.mark.parametrize("collective", ["all-gather", "reduce-scatter"])
def test_collectives_take_one_hop_less_than_there_are_devices(hand, devices, collective):
    """M = 4000 bytes in n equal boxes, links of 1000 bytes/us: the box of one end passes n - 1 links, each
    4 / n us; at every link boxes follow each other without a gap. Segment s is crossed by s + 1 boxes to
    the right (makers on its left, or users on its right) and n - 1 - s to the left."""
    part = 1000 // devices

    def box(maker, user):
        owner = maker if collective == "all-gather" else user
        return (part * owner, part * (owner + 1))

    tasks = lowered(everybody_to_everybody(hand, devices, box), "chain")
    end_us = simulate(tasks, links_between_neighbours(tasks, 8.0)).total_us
    assert end_us == pytest.approx((devices - 1) * 4 / devices, rel=1e-12)
    right = np.arange(1, devices) * 4.0 * part
    expected = [right, right[::-1]] if collective == "all-gather" else [right[::-1], right]
    assert crossed_bytes(tasks, devices).tolist() == np.array(expected).tolist()


def test_boxes_that_differ_pass_those_in_between(hand):
    """An exchange of all with all in which nobody needs what another needs: nothing is shared, and each box
    crosses the segments that it crosses directly, from neighbour to neighbour."""
    placement = everybody_to_everybody(
        hand, 4, lambda maker, user: (250 * maker + 60 * user, 250 * maker + 60 * user + 60)
    )
    direct, chain = lowered(placement, "direct"), lowered(placement, "chain")
    assert crossed_bytes(chain, 4).tolist() == crossed_bytes(direct, 4).tolist()
    assert direct.transfers == 4 * 3
    assert chain.transfers == 2 * (3 * 1 + 2 * 2 + 1 * 3)


def gpt_placement(devices, layout):
    workload = Gpt(Gpt.Options(layers=2, hidden=64, heads=8, sequence=32, vocabulary=100))
    graph, cluster = workload.graph(8, "mixed"), Cluster(gpus=devices, bandwidth_gbps=100.0)
    balanced = partition(
        graph, V100(V100.Options()), cluster, mp=devices, tau_us=0.1, layout=fixed_layout(graph, layout)
    )
    return Algorithm1(Algorithm1.Options()).place(balanced, PlacementLimits(devices=devices, range_hops=None))


@pytest.mark.parametrize("layout", ["tensor", "megatron"])
def test_no_segment_is_crossed_more_often(layout):
    """And where tensors are gathered and summed, far less often in the middle: 4 to 8 times for 8 devices."""
    placement = gpt_placement(8, layout)
    tasks = lowered(placement, "chain")
    direct, chain = crossed_bytes(lowered(placement, "direct"), 8), crossed_bytes(tasks, 8)
    assert (chain <= direct).all()
    assert set(np.abs(tasks.src - tasks.dst).tolist()) <= {1, 7}  # 7: the ring of gradients
    assert (chain[:, 3] < direct[:, 3] / 2).all()


@pytest.mark.parametrize("layout", ["tensor", "megatron"])
@pytest.mark.parametrize("recompute", [False, True])
def test_everybody_still_gets_what_it_needs(layout, recompute):
    """Every data edge between devices is a path of the chained tasks, from its maker to its user."""
    placement = gpt_placement(4, layout)
    group = group_tasks(placement, recompute=recompute)
    graph = digraph(lowered(placement, "chain", recompute=recompute))
    remote = group.device[group.edge_src] != group.device[group.edge_dst]
    edges = set(zip(group.edge_src[remote].tolist(), group.edge_dst[remote].tolist(), strict=True))
    assert len(edges) > 50
    reached = {src: nx.descendants(graph, src) for src in {src for src, _ in edges}}
    assert all(dst in reached[src] for src, dst in edges)
