"""A row for all legs of a way says what a transfer for each leg says."""

import numpy as np
import pytest

from sipml_core.engine.simulation import simulate
from sipml_core.lowering import relaying
from sipml_core.lowering.folding import Pairs, symmetry
from sipml_core.lowering.grouptemplate import GroupTemplate
from sipml_core.lowering.joblowering import Lowering
from sipml_core.lowering.treesteps import Trees
from sipml_core.model import BalancedGraph, Cluster, Network, Placement, PlacementLimits, Plan
from sipml_core.partition.partitioning import partition
from sipml_core.testing.worked import switch

COLUMNS = ("gpu", "duration_us", "priority", "src", "dst", "size_bytes", "latency_steps")
COLUMNS += ("succ_start", "successors", "marks", "label", "startup_us", "kind", "slows")
DEVICES = 5
#: Those that pass something on.
SEEDS = [0, 1, 2, 3, 4, 5, 7, 8]


def random_trees(rng):
    """Trees in which each device hears from one that is nearer to the root in some random order."""
    parents = np.empty((DEVICES, DEVICES), dtype=np.int32)
    for root in range(DEVICES):
        reached = [root]
        parents[root, root] = root
        for device in rng.permutation(np.delete(np.arange(DEVICES), root)).tolist():
            parents[root, device] = reached[-1] if rng.random() < 0.7 else rng.choice(reached)
            reached.append(device)
    return Trees(parents=parents, relays=True)


@pytest.fixture
def job(two_layers, gpu):
    """Linear layers split at random on devices at random, that exchange along random trees."""

    def make(seed, *, relays=True, **options):
        rng = np.random.default_rng(seed)
        graph = two_layers(layers=4)
        layout = {f"f{k}": str(rng.choice([*"nio"])) for k in range(4)}
        cluster = Cluster(gpus=DEVICES, bandwidth_gbps=1.0, minimum_op_us=0, launch_us=0)
        balanced: BalancedGraph = partition(graph, gpu, cluster, mp=DEVICES, tau_us=1.0, layout=layout)
        placement = Placement(
            graph=balanced,
            limits=PlacementLimits(devices=DEVICES),
            device=rng.integers(0, DEVICES, balanced.subops),
        )
        trees = random_trees(rng)
        trees = Trees(parents=trees.parents, relays=relays)
        plan = Plan(mp=DEVICES, **{"dp": 3, "global_batch": 6, "exchange": "chain", **options})
        template = GroupTemplate.of(placement, plan, trees)
        return Lowering.of(template, Cluster(gpus=plan.gpus, bandwidth_gbps=1.0))

    return make


def assert_same(found, expected):
    for name in COLUMNS:
        assert getattr(found, name).tolist() == getattr(expected, name).tolist(), name
    assert (found.labels, found.gpus) == (expected.labels, expected.gpus)


@pytest.mark.parametrize("large", [1, 1 << 13])
@pytest.mark.parametrize("seed", SEEDS)
def test_legs_are_the_transfers_along_trees(job, seed, large, monkeypatch):
    """The same numbers, priorities and dependencies, however the order of an exchange is found."""
    monkeypatch.setattr(relaying, "_LARGE", large)
    made = job(seed, global_batch=12, micro_batch=2, iterations=2)
    relayed, explicit = made.relayed_tasks(), made.tasks()
    assert relayed.rows.transfers < relayed.transfers == explicit.transfers
    assert_same(relayed.explicit, explicit)


@pytest.mark.parametrize("devices", [4, 6])
def test_so_are_exchanges_in_which_everybody_hears_from_one(two_layers, gpu, devices, monkeypatch):
    """All of them large, and along a chain: none is left for those that are found some at a time."""
    monkeypatch.setattr(relaying, "_LARGE", 1)
    cluster = Cluster(gpus=devices, bandwidth_gbps=1.0, minimum_op_us=0, launch_us=0)
    layout = {f"f{k}": "nio"[k % 3] for k in range(2)}
    balanced = partition(two_layers(layers=2), gpu, cluster, mp=devices, tau_us=1.0, layout=layout)
    placement = Placement(
        graph=balanced,
        limits=PlacementLimits(devices=devices),
        device=np.arange(balanced.subops) % devices,
    )
    root, device = np.ogrid[:devices, :devices]
    trees = Trees(parents=(device + np.sign(root - device)).astype(np.int32), relays=True)
    made = Lowering.of(
        GroupTemplate.of(placement, Plan(mp=devices, dp=1, global_batch=2, exchange="chain"), trees),
        Cluster(gpus=devices, bandwidth_gbps=1.0),
    )
    assert_same(made.relayed_tasks().explicit, made.tasks())


@pytest.mark.parametrize("seed", SEEDS)
def test_bytes_are_those_of_the_transfers_along_trees(job, seed):
    """Of each pair, and by kind; `sends` has the same pairs."""
    made = job(seed)
    transfers = made.template.transfers
    pair = transfers.sender * DEVICES + transfers.device
    expected = np.bincount(pair, transfers.size_bytes, DEVICES**2)
    sender, device, size_bytes = made.template.leg_ends
    found = np.bincount(sender * DEVICES + device, size_bytes, DEVICES**2)
    assert found.tolist() == expected.tolist()
    assert made.template.transfer_count == len(pair)
    tasks = made.tasks(1)
    assert set(zip(*map(np.ndarray.tolist, made.relayed_tasks(1).ends), strict=True)) == set(
        zip(tasks.src.tolist(), tasks.dst.tolist(), strict=True)
    )
    assert made.relayed_tasks(1).total_bytes == pytest.approx(tasks.total_bytes, rel=1e-12)


@pytest.mark.parametrize("queue", ["pair", "source"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_folded_run_is_to_the_bit_that_of_explicit_legs(job, seed, queue):
    made = job(seed)
    pairs = Pairs.of(made)
    network = Network.of(switch(made.plan.gpus), pairs.tasks)
    part = symmetry(pairs, network, network.link_gbps)
    relayed, explicit = part.folded(Lowering.relayed_tasks), part.folded()
    assert_same(relayed.tasks.explicit, explicit.tasks)
    of_legs = relayed.tasks.explicit_network(relayed.network)
    assert of_legs.transfer_pair.tolist() == explicit.network.transfer_pair.tolist()
    found = simulate(relayed.tasks, relayed.network, queue=queue)
    expected = simulate(explicit.tasks, explicit.network, queue=queue)
    for name in ("snapshot_us", "compute_us", "exposed_us", "dark_us", "link_bytes", "link_busy_us"):
        assert getattr(found, name).tolist() == getattr(expected, name).tolist(), name


def test_nothing_is_one_row_where_nothing_is_relayed(job):
    """What a single device gets goes there directly; and so it does without trees."""
    assert job(1, relays=False).relayed_tasks() is None


def test_circles_are_refused(job):
    """Devices 1 and 2 hear from each other whatever the root."""
    exchange = job(0).template.exchange
    parents = np.tile(np.arange(DEVICES, dtype=np.int32)[:, None], DEVICES)
    parents[:, 1], parents[:, 2] = 2, 1
    with pytest.raises(ValueError, match="they go in a circle"):
        relaying.relayed(exchange.direct, exchange.tasks, Trees(parents=parents, relays=True))
