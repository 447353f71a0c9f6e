"""A server of 8 V100s as it is wired: all links at once, whatever the collective."""

import types
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from sipml_core.cases.case import Case
from sipml_core.cases.compilation import compile_case
from sipml_core.cases.reuse import Reuse
from sipml_core.cases.variants import gpus_of, group_shape, own_links
from sipml_core.collectives import LinkTrees, Rings
from sipml_core.collectives.linkrings import rings_of
from sipml_core.engine.simulation import simulate
from sipml_core.errors import InfeasibleError
from sipml_core.experiment.reading import read_experiment, read_tables
from sipml_core.lowering.collectives import Rings as RingTasks
from sipml_core.model.fabric import Fabric
from sipml_core.model.groupshape import GroupShape, ReplicaShape
from sipml_core.model.network import Network
from sipml_core.model.plan import Plan
from sipml_core.model.prices import Prices
from sipml_core.model.taskbuilder import TaskBuilder

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
GBPS_OF_GBYTES = 8.0

#: NVLinks of each pair, as `nvidia-smi topo` prints them (DLPerf, GPT report).
WIRING = (
    (0, 1, 1), (0, 2, 1), (0, 3, 2), (0, 4, 2), (1, 2, 2), (1, 3, 1), (1, 5, 2), (2, 3, 2),
    (2, 6, 1), (3, 7, 1), (4, 5, 1), (4, 6, 1), (4, 7, 2), (5, 6, 2), (5, 7, 1), (6, 7, 2),
)  # fmt: skip


def mesh(gpus):
    """The first `gpus` of the server, alone."""
    graph = nx.Graph()
    for gpu in range(gpus):
        graph.add_node(f"gpu{gpu}", gpu=gpu)
    for a, b, links in WIRING:
        if max(a, b) < gpus:
            graph.add_edge(f"gpu{a}", f"gpu{b}", gbps=25 * GBPS_OF_GBYTES * links)
    return Fabric.from_networkx(graph)


def replicas(gpus):
    plan = Plan(mp=1, dp=gpus, global_batch=gpus)
    links = own_links(mesh(gpus), gpus_of(mesh(gpus), plan).T)
    return ReplicaShape(replicas=gpus, devices=1, links=links)


def all_reduce_gbytes_per_s(gpus, orders):
    """What 2 (n - 1) / n S over the time of an all-reduce comes to. [GB/s]"""
    builder, size_bytes = TaskBuilder(gpus, ("sync",)), 1e9
    members = np.arange(gpus, dtype=np.int32)[None]
    RingTasks(builder=builder, steps="fluid", orders=orders).all_reduce(members, size_bytes)
    tasks = builder.build()
    total_us = simulate(tasks, Network.of(mesh(gpus), tasks)).total_us
    return 2 * (gpus - 1) / gpus * size_bytes / total_us / 1e3


def test_links_of_groups_take_no_room_for_all_pairs_of_a_large_cluster():
    """A table of all pairs of 65 536 GPUs would take 32 GiB; the least of two links of 400 and 300 is 300."""
    wires = types.SimpleNamespace(
        gpus=65536, circuits=False, link_tail=np.array([0, 1, 65534, 65534, 65535]),
        link_head=np.array([1, 0, 65535, 65535, 65534]), link_gbps=np.array([400, 400, 100, 200, 400.0]),
    )  # fmt: skip
    groups = np.array([[0, 1], [65534, 65535]], dtype=np.int32)
    assert own_links(wires, groups) == ((0.0, 300.0), (400.0, 0.0))
    assert own_links(wires, np.array([[0, 2]], dtype=np.int32)) == ()


def test_the_file_of_the_example_is_the_wiring(registry):
    """Every GPU has six links of 25 GB/s."""
    assert mesh(8).link_gbps.sum() == 8 * 6 * 25 * GBPS_OF_GBYTES
    experiment = read_experiment(read_tables(EXAMPLES / "v100_cube_mesh.toml"), registry)
    interconnect = experiment.interconnects[0]
    fabric = interconnect.topology.build(interconnect.cluster)
    plan = Plan(mp=8, dp=1, global_batch=16)
    assert own_links(fabric, gpus_of(fabric, plan)) == own_links(mesh(8), gpus_of(mesh(8), plan))


def test_three_cycles_each_both_ways_are_found():
    """0-3-2-1-5-6-7-4 over double links, 0-1-3-7-5-4-6-2 over single ones: six rings of 25 GB/s in all."""
    found = {order: gbps / GBPS_OF_GBYTES for order, gbps in rings_of(replicas(8).links)}
    assert found == {
        (0, 3, 2, 1, 5, 6, 7, 4): 50, (0, 4, 7, 6, 5, 1, 2, 3): 50,
        (0, 1, 3, 7, 5, 4, 6, 2): 25, (0, 2, 6, 4, 5, 7, 3, 1): 25,
    }  # fmt: skip


@pytest.mark.parametrize(("gpus", "gbytes_per_s"), [(8, 150), (4, 100)])
def test_an_all_reduce_uses_every_link(gpus, gbytes_per_s):
    """On all eight GPUs 6 rings of 25 GB/s; on 0 to 3 alone 0-3-2-1 and 0-3-1-2, both ways."""
    shape = replicas(gpus)
    orders = Rings(None).rings(shape)
    assert sum(part for _, part in orders) == pytest.approx(1)
    assert all_reduce_gbytes_per_s(gpus, orders) == pytest.approx(gbytes_per_s, rel=1e-9)
    assert all_reduce_gbytes_per_s(gpus, ()) < 0.4 * gbytes_per_s


def test_auto_takes_the_six_rings(registry):
    """Gradients in one bucket after the backward pass: 2 (n - 1) / n M at 150 GB/s is all that they add."""
    tables = read_tables(EXAMPLES / "v100_cube_mesh.toml")
    gpt = {"name": "gpt", "layers": 2, "hidden": 512, "heads": 8, "sequence": 128, "vocabulary": 1000}
    tables["workload"] = [{**gpt, "strategy": {"mp": 1, "bucket_bytes": "1 TB"}}]
    experiment = read_experiment(tables, registry)
    job, interconnect = experiment.jobs[0], experiment.interconnects[0]
    case = Case.of(experiment, job, interconnect, job.plan(8))
    times_us = {c.plan.all_reduce: simulate(c.tasks, c.network).total_us for c in compile_case(case, Reuse())}
    assert times_us.keys() == {"flat", "rings"}
    compute_us = simulate_alone_us(case)
    size_bytes = 2.0 * job.workload.graph(2, "mixed").parameter_elements
    expected_us = 2 * 7 / 8 * size_bytes / 150e3
    assert times_us["rings"] - compute_us == pytest.approx(expected_us, rel=1e-6)
    assert times_us["flat"] - compute_us > 2 * expected_us


def simulate_alone_us(case):
    """What one GPU computes in an iteration of the case."""
    compiled = compile_case(case, Reuse())[0]
    mine = compiled.tasks.gpu == 0
    return float(compiled.tasks.duration_us[mine[: len(compiled.tasks.duration_us)]].sum())


@pytest.mark.parametrize(("gpus", "most"), [(4, 1), (8, 1.5)])
def test_link_trees_use_links_evenly(gpus, most):
    """8 trees of 7 links over 48 links of 25 GB/s, one way each: none of the 32 (16 of them double) is used
    more often than 3 times (double) and once; fewer is not possible, as 16 x 2 + 16 < 56."""
    plan = Plan(mp=gpus, dp=1, global_batch=1)
    fabric = mesh(gpus)
    shape = group_shape(fabric, plan, Prices.flat(1.0), 1200.0)
    assert LinkTrees(None).offered(shape)
    parents = LinkTrees(None).parents(shape)
    used = np.zeros((gpus, gpus))
    for root in range(gpus):
        for device in set(range(gpus)) - {root}:
            used[parents[root, device], device] += 1
    links = np.array(shape.links) / (25 * GBPS_OF_GBYTES)
    assert used.sum() == gpus * (gpus - 1)
    assert (used[links == 0] == 0).all()
    assert (used[links > 0] / links[links > 0]).max() == most


def test_groups_without_links_of_their_own_are_refused():
    shape = ReplicaShape(replicas=8, devices=1)
    assert not Rings(None).offered(shape)
    with pytest.raises(
        InfeasibleError, match="join all 8 replicas in a ring, and there are none: use 'flat'"
    ):
        Rings(None).tiers(shape)
    with pytest.raises(InfeasibleError, match="rings among 8 replicas at most, not 16"):
        Rings(None).tiers(ReplicaShape(replicas=16, devices=1))
    alone = GroupShape.of(devices=4)
    assert not LinkTrees(None).offered(alone)
    with pytest.raises(InfeasibleError, match="join all 4 GPUs of a group"):
        LinkTrees(None).parents(alone)
