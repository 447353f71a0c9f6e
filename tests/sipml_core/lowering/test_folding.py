"""Folding on hand-made fabrics: every GPU's account is that of its image, or folding is refused."""

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sipml_core.engine.bounds import bounds
from sipml_core.engine.simulation import simulate
from sipml_core.lowering.folding import NoSymmetryError, Pairs, symmetry
from sipml_core.lowering.grouptemplate import GroupTemplate
from sipml_core.lowering.joblowering import Lowering
from sipml_core.model.balanced import Placement, PlacementLimits
from sipml_core.model.cluster import Cluster
from sipml_core.model.fabric import Fabric
from sipml_core.model.hints import FabricHints
from sipml_core.model.network import Network
from sipml_core.model.plan import Plan
from sipml_core.model.routes import NO_LINK, Routes
from sipml_core.partition.partitioning import partition


def wired(gpus, middle, *, order=None, latency_us=0.5):
    """Egress i, ingress N + j, and between them the link that `middle` names; 0.01 Gbps = 1.25 bytes / us."""

    def route(src, dst):
        links = np.column_stack([src, middle(src, dst), gpus + dst])
        return Routes(links=links, latency_us=np.broadcast_to(latency_us, gpus)[src])

    return Fabric(gpus=gpus, link_gbps=np.full(4 * gpus, 0.01), route=route, hints=FabricHints(order=order))


def switch(gpus, **properties):
    return wired(gpus, lambda src, dst: np.full(len(src), NO_LINK), **properties)


def bus(gpus, **properties):
    """One link that every transfer crosses."""
    return wired(gpus, lambda src, dst: np.full(len(src), 2 * gpus), **properties)


def uplinks(gpus, size=3):
    """GPUs in rows of `size` send to other rows through one link."""
    return wired(gpus, lambda src, dst: np.where(src // size == dst // size, NO_LINK, 2 * gpus + src // size))


def circle(gpus):
    """Links i -> i + 1 round a circle; transfers go round it, up to 8 links far."""

    def route(src, dst):
        hops, column = (dst - src) % gpus, np.arange(8)
        links = np.where(column < hops[:, None], (src[:, None] + column) % gpus, NO_LINK)
        return Routes(links=links, latency_us=0.1 * hops)

    return Fabric(gpus=gpus, link_gbps=np.full(gpus, 0.01), route=route)


@pytest.fixture(scope="session")
def placed(two_layers, gpu):
    """Three linear layers on three devices: each op split or not, each sub-op wherever the seed says."""

    def make(seed):
        random = np.random.default_rng(seed)
        graph = two_layers(layers=3)
        layout = {f"f{k}": str(random.choice([*"nio"])) for k in range(3)}
        cluster = Cluster(gpus=3, bandwidth_gbps=0.01, minimum_op_us=0, launch_us=0)
        balanced = partition(graph, gpu, cluster, mp=3, tau_us=10.0, layout=layout)
        device = random.integers(0, 3, balanced.subops)
        return Placement(graph=balanced, limits=PlacementLimits(devices=3), device=device)

    return make


def lowering(placement, dp, fabric, *, gpu_speed=(), **options):
    mp = placement.limits.devices
    plan = Plan(mp=mp, dp=dp, global_batch=dp, **options)
    cluster = Cluster(gpus=mp * dp, bandwidth_gbps=0.01, gpu_speed=gpu_speed)
    return Lowering.of(GroupTemplate.of(placement, plan), cluster, order=fabric.hints.order)


def folded(job, fabric):
    pairs = Pairs.of(job)
    network = Network.of(fabric, pairs.tasks)
    return symmetry(pairs, network, network.link_gbps).folded()


def assert_same_run(job, fabric, part, queue="pair"):
    """Every GPU of the full run has the account of its image in the folded run, at the same times."""
    tasks = job.tasks()
    network = Network.of(fabric, tasks)
    full, short = simulate(tasks, network, queue=queue), simulate(part.tasks, part.network, queue=queue)
    assert short.snapshot_us == pytest.approx(full.snapshot_us, rel=1e-9)
    gpus = job.gpu_of.reshape(-1)
    image = part.gpus[np.arange(len(gpus)) % len(part.gpus)]
    for name in ("compute_us", "exposed_us", "dark_us", "idle_us"):
        expected = getattr(full, name)[:, gpus]
        assert getattr(short, name)[:, image] == pytest.approx(expected, rel=1e-9, abs=1e-9), name
    # A transfer alone has the whole of a link that the images share.
    alone = bounds(part.tasks, part.network, link_share=part.link_share)
    assert attrs.astuple(alone) == pytest.approx(attrs.astuple(bounds(tasks, network)), rel=1e-12)
    repeats = len(gpus) // len(part.gpus)
    assert part.tasks.size_bytes.sum() * repeats == pytest.approx(tasks.size_bytes.sum(), rel=1e-12)


@given(
    seed=st.integers(0, 10_000),
    dp=st.sampled_from([2, 3, 4, 6]),
    fabric=st.sampled_from([switch, bus, uplinks]),
    queue=st.sampled_from(["pair", "source"]),
    ring_steps=st.sampled_from(["fluid", "explicit"]),
    iterations=st.integers(1, 2),
)
@settings(max_examples=80, deadline=None)
def test_a_folded_run_is_the_full_run(placed, seed, dp, fabric, queue, ring_steps, iterations):
    """Any placement, on fabrics that repeat every group; on a bus all groups share the one link."""
    fabric = fabric(3 * dp)
    job = lowering(placed(seed), dp, fabric, ring_steps=ring_steps, iterations=iterations, bucket_bytes=100)
    part = folded(job, fabric)
    assert part.groups == 1
    assert_same_run(job, fabric, part, queue)


@pytest.mark.parametrize(
    ("rows", "speeds", "groups"),
    [(3, {}, 1), (6, {}, 2), (9, {}, 3), (3, {1: 0.5, 7: 0.5, 13: 0.5}, 2), (9, {0: 2.0, 9: 2.0}, 3)],
)
def test_the_fewest_groups_that_repeat(placed, rows, speeds, groups):
    """Six groups of three; rows of n GPUs, and speeds, repeat every so many groups."""
    fabric = uplinks(18, rows)
    job = lowering(placed(1), 6, fabric, gpu_speed=speeds)
    part = folded(job, fabric)
    assert part.groups == groups
    assert_same_run(job, fabric, part)


def test_one_slow_gpu_does_not_fold(placed):
    fabric = switch(18)
    with pytest.raises(NoSymmetryError, match=r"speed \(gpu_speed\) between 3 groups and the next 3"):
        folded(lowering(placed(1), 6, fabric, gpu_speed={4: 0.5}), fabric)


def test_groups_are_laid_out_in_the_order_of_the_fabric(placed):
    """GPU N - 1 - k at position k: the first group is the last three GPUs, and accounts are theirs."""
    order = np.arange(11, -1, -1, dtype=np.int32)
    fabric = wired(12, lambda src, dst: 24 + src // 3, order=order)
    job = lowering(placed(2), 4, fabric)
    part = folded(job, fabric)
    assert part.gpus.tolist() == [11, 10, 9]
    assert_same_run(job, fabric, part)


def test_a_scattered_order_does_not_fold(placed):
    """Groups that lie differently to the rows have other routes."""
    order = np.random.default_rng(0).permutation(12).astype(np.int32)
    fabric = wired(12, lambda src, dst: 24 + (src // 3 + dst // 3) % 5, order=order)
    with pytest.raises(
        NoSymmetryError, match="share links in different ways between 2 groups and the next 2"
    ):
        folded(lowering(placed(2), 4, fabric), fabric)


def test_a_bus_is_divided_among_the_images(placed):
    """Four groups share a link of 0.01 Gbps: one of them has a quarter of it. Its own ports stay whole."""
    fabric = bus(12)
    part = folded(lowering(placed(3), 4, fabric), fabric)
    shared = part.network.link_id == 24
    assert part.network.link_gbps[shared].tolist() == [0.0025]
    assert set(part.network.link_gbps[~shared]) == {0.01}


def test_routes_through_their_own_images_do_not_fold(placed):
    """Round a circle with two groups of three, the link 3 ahead is the image of the first: a transfer that
    goes further than to the counterpart crosses both, and would count twice on what is one link."""
    fabric = circle(6)
    with pytest.raises(NoSymmetryError, match="crosses two links that are images of each other"):
        folded(lowering(placed(4), 2, fabric), fabric)


def test_one_group_of_another_latency_does_not_fold(placed):
    fabric = switch(12, latency_us=np.where(np.arange(12) == 5, 0.6, 0.5))
    with pytest.raises(NoSymmetryError, match="latencies differ between 2 groups and the next 2"):
        folded(lowering(placed(5), 4, fabric), fabric)


def test_one_slower_link_does_not_fold(placed):
    gbps = np.where(np.arange(48) == 4, 0.005, 0.01)
    fabric = attrs.evolve(switch(12), link_gbps=gbps)
    with pytest.raises(NoSymmetryError, match="links differ in capacity between 2 groups and the next 2"):
        folded(lowering(placed(6), 4, fabric), fabric)


def test_a_route_of_another_length_does_not_fold(placed):
    """The last group alone goes through a switch more."""
    fabric = wired(12, lambda src, dst: np.where(src >= 9, 24, NO_LINK))
    with pytest.raises(NoSymmetryError, match="routes differ in length"):
        folded(lowering(placed(7), 4, fabric), fabric)


def test_a_prime_number_of_uneven_groups_does_not_fold(placed):
    """Five groups can only repeat every one of them."""
    fabric = switch(15, latency_us=np.where(np.arange(15) == 5, 0.6, 0.5))
    with pytest.raises(NoSymmetryError, match="between one group and the next"):
        folded(lowering(placed(5), 5, fabric), fabric)


def test_pairs_are_those_of_the_whole_job(placed):
    """Ends and bytes, without lowering more than one group."""
    order = np.random.default_rng(1).permutation(12).astype(np.int32)
    job = lowering(placed(8), 4, switch(12, order=order), iterations=2)
    tasks, pairs = job.tasks(), Pairs.of(job).tasks
    expected, got = np.zeros((2, 12, 12))
    np.add.at(expected, (tasks.src, tasks.dst), tasks.size_bytes)
    np.add.at(got, (pairs.src, pairs.dst), pairs.size_bytes)
    assert (got == expected).all()
    assert pairs.transfers == np.count_nonzero(expected)
