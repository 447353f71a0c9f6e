"""Wavelengths that a plan leaves idle, given to traffic that comes later."""

import numpy as np
import pytest
from sipml_ring.circuits import RingCircuits
from sipml_ring.ringschedulers import RingFast

from sipml_core.model import TrafficMatrix


def ring(gpus, **fields):
    usual = {"circuit_gbps": 25.0, "interval_us": 100.0, "reconfiguration_us": 25.0, "reach_hops": 3}
    return RingCircuits.of(gpus, 8, **{**usual, **fields})


def traffic(rng, gpus, part, period=None):
    """Log-normal demands between some pairs within reach, the same after each period."""
    period = period or gpus
    src, hops = np.nonzero(rng.random((period, 6)) < part)
    hops = np.array([-3, -2, -1, 1, 2, 3])[hops]
    demand = rng.lognormal(0, 2, len(src))
    turns = np.arange(0, gpus, period)[:, None]
    return TrafficMatrix.from_pairs(
        gpus,
        (src + turns).reshape(-1),
        ((src + hops + turns) % gpus).reshape(-1),
        np.tile(demand, len(turns)),
    )


def idle_ways(plan, src, dst):
    """Whether a pair finds an index that is idle all the way, in one direction or the other."""
    lit = plan.occupancy()
    for direction, wavelengths in enumerate((4, 4)):
        busy = np.zeros((wavelengths, plan.gpus), dtype=bool)
        mine = lit.group == direction
        busy[lit.channel[mine], lit.place[mine]] = True
        if plan.control.allowed(src, dst)[0, direction]:
            segments, _ = plan.control.covers(src, dst, direction)
            if not busy[:, segments].any(axis=1).all():
                return True
    return False


@pytest.mark.parametrize("period", [None, 4])
@pytest.mark.parametrize("seed", range(4))
def test_later_traffic_takes_nothing_and_leaves_nothing_idle(seed, period):
    """Whether or not traffic repeats: pairs of now have what they have without it, and no more of it dark; no
    later pair finds an index that is idle all the way."""
    rng, scheduler, control = np.random.default_rng(seed), RingFast(None), ring(12)
    before = scheduler.plan(control, traffic(rng, 12, 0.4, period), None)
    now, later = traffic(rng, 12, 0.2, period), traffic(rng, 12, 0.4, period)
    usual = scheduler.plan(control, now, before)
    ahead = scheduler.plan_ahead(control, now, before, later)
    control.check(ahead)
    assert ahead.period == usual.period

    rows = [plan.row_of(now.src, now.dst) for plan in (usual, ahead)]
    for name in ("gbps", "kept_gbps", "dark_us", "demand"):
        usually, now_has = (getattr(plan, name)[row] for plan, row in zip((usual, ahead), rows, strict=True))
        assert np.array_equal(usually, now_has), name
    gained = ahead.capacity_gbps(later.src, later.dst) - usual.capacity_gbps(later.src, later.dst)
    assert gained.min() >= 0
    only_later = ~np.isin(later.key, now.key)
    for src, dst in zip(later.src[only_later], later.dst[only_later], strict=True):
        assert not idle_ways(ahead, np.array([src]), np.array([dst]))


def test_the_next_plan_finds_them_lit():
    """GPU 0 sends to 1, and next 1 to 2, over other segments: the second plan has nothing to change."""
    scheduler, control = RingFast(None), ring(12)
    first_pair = TrafficMatrix.from_pairs(12, [0], [1], [1.0])
    second_pair = TrafficMatrix.from_pairs(12, [1], [2], [1.0])
    first = scheduler.plan_ahead(control, first_pair, None, second_pair)
    second = scheduler.plan(control, second_pair, first)
    row = second.row_of(np.array([1]), np.array([2]))
    assert second.gbps[row] == [100.0]
    assert second.dark_us[row] == [0.0]


def test_where_an_index_is_not_all_nothing_is_given():
    """GPUs on the way may change wavelengths: plans are as without later traffic."""
    control = ring(12, wavelength="converted")
    now = TrafficMatrix.from_pairs(12, [0], [1], [1.0])
    later = TrafficMatrix.from_pairs(12, [1], [2], [1.0])
    made = RingFast(None).plan_ahead(control, now, None, later)
    assert made.capacity_gbps(later.src, later.dst) == [0.0]
