"""Links that a plan leaves idle, given to traffic that comes later."""

import numpy as np
import pytest
from sipml_ocs.circuits import OcsCircuits
from sipml_ocs.ocsnetwork import OcsExact

from sipml_core.model import TrafficMatrix


def traffic(rng, gpus, part):
    """Log-normal demands between some pairs of GPUs."""
    src, dst = np.nonzero((rng.random((gpus, gpus)) < part) & ~np.eye(gpus, dtype=bool))
    return TrafficMatrix.from_pairs(gpus, src, dst, rng.lognormal(0, 2, len(src)))


def idle(plan):
    """Links in no circuit. [switches, gpus] at which they start, and end"""
    starts = plan.port_map < 0
    ends = np.ones_like(starts)
    switch, src = np.nonzero(~starts)
    ends[switch, plan.port_map[switch, src]] = False
    return starts, ends


@pytest.mark.parametrize("seed", range(8))
def test_later_traffic_takes_nothing_and_leaves_nothing_idle(seed):
    """After a plan for other traffic: pairs of now have the circuits, on the same switches, that they have
    without it, and no more of them dark; no switch is left on which a later pair has both ends idle."""
    rng = np.random.default_rng(seed)
    gpus, scheduler = 6, OcsExact(None)
    control = OcsCircuits(
        gpus=gpus, circuit_gbps=10.0, circuits_per_gpu=4, interval_us=100.0, reconfiguration_us=20.0
    )
    before = scheduler.plan(control, traffic(rng, gpus, 0.3), None)
    now, later = traffic(rng, gpus, 0.15), traffic(rng, gpus, 0.3)
    usual = scheduler.plan(control, now, before)
    ahead = scheduler.plan_ahead(control, now, before, later)
    control.check(ahead)

    rows = [plan.row_of(now.src, now.dst) for plan in (usual, ahead)]
    for name in ("gbps", "kept_gbps", "dark_us"):
        usually, now_has = (getattr(plan, name)[row] for plan, row in zip((usual, ahead), rows, strict=True))
        assert np.array_equal(usually, now_has), name
    src, dst = later.src, later.dst
    starts, ends = idle(ahead)
    assert not (starts[:, src] & ends[:, dst]).any()
    gained = ahead.capacity_gbps(src, dst) - usual.capacity_gbps(src, dst)
    assert gained.min() >= 0
    # A circuit stays lit where the plan before had it on the same switch.
    same = (ahead.port_map == before.port_map) & (ahead.port_map >= 0)
    assert ahead.kept.sum() == same.sum()


def test_the_next_plan_finds_them_lit():
    """GPU 0 sends to 1, and next 1 to 0: the second plan, made after the first, has nothing to change."""
    control = OcsCircuits(
        gpus=2, circuit_gbps=10.0, circuits_per_gpu=2, interval_us=100.0, reconfiguration_us=20.0
    )
    there = TrafficMatrix.from_pairs(2, [0], [1], [1.0])
    back = TrafficMatrix.from_pairs(2, [1], [0], [1.0])
    scheduler = OcsExact(None)
    for ahead, dark_us in ((False, 20.0), (True, 0.0)):
        first = (
            scheduler.plan_ahead(control, there, None, back)
            if ahead
            else scheduler.plan(control, there, None)
        )
        second = scheduler.plan(control, back, first)
        assert second.capacity_gbps([1], [0]) == [20.0]
        assert second.dark_us[second.row_of(np.array([1]), np.array([0]))] == [dark_us]
