"""Forwarding on a ring and over a grid: bytes on every hop, who waits for what, the latency of all hops."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from sipml_core.engine import simulate
from sipml_core.lowering import GridForwarding, RingForwarding
from sipml_core.model import Network, Plan, TaskBuilder
from sipml_core.placement import expert_grid, grid_peers
from sipml_core.testing.worked import switch


def sent(ring, src, dst, size_bytes=1000.0, **kwargs):
    """One transfer between two tasks, passed on."""
    builder = TaskBuilder(ring.gpus)
    ends = builder.tasks([src, dst], 1.0, 0, 0)
    transfer = builder.transfers([src], [dst], size_bytes, 0, **kwargs)
    builder.depend(ends[:1], transfer)
    builder.depend(transfer, ends[1:])
    return ring.applied(builder.build(), np.arange(ring.gpus, dtype=np.int32), ring.gpus)


@pytest.mark.parametrize("gpus", [7, 16, 33])
@pytest.mark.parametrize("reach", [1, 3, 5])
def test_hops_are_in_reach_as_few_as_can_be_and_lead_to_the_end(gpus, reach):
    """ceil(distance / reach) of them, over the shorter way round."""
    ring = RingForwarding(reach_hops=reach, gpus=gpus)
    for dst in range(1, gpus):
        way = ring.waypoints(0, dst)
        steps = [min((b - a) % gpus, (a - b) % gpus) for a, b in itertools.pairwise(way)]
        assert (way[0], way[-1]) == (0, dst)
        assert max(steps) <= reach
        assert len(steps) == -(-min(dst, gpus - dst) // reach)
        assert sum(steps) == min(dst, gpus - dst)


def test_every_hop_carries_all_bytes_at_the_same_time():
    """Four hops of 1000 bytes at 8 Gbps (1 us each) go on together: 1 us work, 1 us sent, 1 us work."""
    tasks = sent(RingForwarding(reach_hops=2, gpus=16), 0, 8)
    assert sorted(zip(tasks.src.tolist(), tasks.dst.tolist(), strict=True)) == [
        (0, 2),
        (2, 4),
        (4, 6),
        (6, 8),
    ]
    assert tasks.size_bytes.tolist() == [1000.0] * 4
    assert simulate(tasks, Network.of(switch(16, 8.0), tasks)).total_us == pytest.approx(3.0)


def test_what_is_passed_on_shares_the_ports_of_those_between():
    """GPU 1 passes on for 0 and sends for itself: its port has 2000 bytes, 2 us."""
    ring = RingForwarding(reach_hops=1, gpus=4)
    builder = TaskBuilder(4)
    builder.transfers([0, 1], [2, 2], 1000.0, 0)
    tasks = ring.applied(builder.build(), np.arange(4, dtype=np.int32), 4)
    assert len(tasks.src) == 3
    assert simulate(tasks, Network.of(switch(4, 8.0), tasks)).total_us == pytest.approx(2.0)


def test_hops_pay_latency_one_after_the_other():
    """The last chunk crosses all hops: each has as many latencies as there are hops, times its own steps."""
    tasks = sent(RingForwarding(reach_hops=2, gpus=16), 0, 6, latency_steps=5.0)
    assert tasks.latency_steps.tolist() == [15.0] * 3


def test_what_is_in_reach_stays():
    """Node by node."""
    ring, far = RingForwarding(reach_hops=8, gpus=16), RingForwarding(reach_hops=1, gpus=16)
    assert sent(ring, 0, 8).src.tolist() == [0]
    assert sent(ring, 0, 8).nodes == 3
    assert sent(far, 0, 8).nodes == 2 + 8


def test_a_chain_of_far_transfers_waits_hop_by_hop_for_whole_ones():
    """A transfer after a far one starts when all hops of that have ended; so do its own hops."""
    ring = RingForwarding(reach_hops=1, gpus=8)
    builder = TaskBuilder(8)
    first = builder.transfers([0], [2], 1000.0, 0)
    second = builder.transfers([2], [4], 1000.0, 0)
    builder.depend(first, second)
    tasks = ring.applied(builder.build(), np.arange(8, dtype=np.int32), 8)
    timeline = simulate(tasks, Network.of(switch(8, 8.0), tasks))
    assert timeline.total_us == pytest.approx(2.0)
    assert timeline.start_us.tolist() == pytest.approx([0.0, 1.0, 0.0, 1.0])


def test_of_the_first_groups_another_passes_on_as_the_image_of_it():
    """Two groups of 4: what GPU 1 sends to 5 is passed on by 3, of its own group, which 2 does for 0."""
    ring = RingForwarding(reach_hops=2, gpus=8)
    builder = TaskBuilder(8)
    builder.transfers([0, 1, 2, 3], [4, 5, 6, 7], 1000.0, 0)
    tasks = ring.applied(builder.build(), np.arange(8, dtype=np.int32), 4)
    assert set(tasks.src.tolist()) == {0, 1, 2, 3}
    hops = sorted(zip(tasks.src.tolist(), tasks.dst.tolist(), strict=True))
    assert hops == [(a, a + 2) for a in range(4) for _ in range(2)]


@pytest.mark.parametrize(
    ("ranks", "degree", "reach", "shape"),
    [(12, 5, None, (3, 4)), (64, 14, None, (8, 8)), (64, 9, None, (4, 4, 4)), (64, 11, 16, (8, 8))],
)
def test_a_grid_joins_all_by_few_peers(ranks, degree, reach, shape):
    """Each hop goes along one axis, or on a ring within reach; nobody has more peers than were counted.

    Two sets of GPUs, of two stages; between them transfers go straight, or round the ring.
    """
    assert expert_grid(ranks, degree, reach_hops=reach) == shape
    plan = Plan(mp=1, pp=2, dp=ranks, ep=ranks, global_batch=ranks)
    grid = GridForwarding.of(plan, plan.positions, shape, reach)
    peers = set()
    for src, dst in itertools.permutations(range(ranks), 2):
        way = grid.waypoints(src, dst)
        assert (way[0], way[-1]) == (src, dst)
        assert len(set(way)) == len(way)
        peers |= set(itertools.pairwise(way))
        for one, other in itertools.pairwise(way):
            places = zip(np.unravel_index(one, shape), np.unravel_index(other, shape), strict=True)
            assert sum(a != b for a, b in places) == 1
            assert reach is None or abs(one - other) <= reach
    assert max(np.bincount([one for one, _ in peers])) == grid_peers(shape, 1, reach) <= degree
    straight = grid.waypoints(0, ranks)
    assert straight == ([0, ranks] if reach is None else list(range(0, ranks + 1, reach)))
