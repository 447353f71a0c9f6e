"""Switches made of small ones: what they connect, and that plans are the best there are."""

import itertools

import numpy as np
import pytest
from sipml_photonic.clos import ClosCircuits, max_min_circuits

from sipml_core.errors import ConfigError, PluginError
from sipml_core.model import CircuitPlan, TrafficMatrix
from sipml_core.scheduling import planned


def clos(gpus=4, group=2, uplinks=1, switches=2):
    return ClosCircuits(
        gpus=gpus, circuit_gbps=10.0, circuits_per_gpu=switches, group_gpus=group, uplinks=uplinks
    )


def plan_for(registry, name, control, src, dst, demand):
    scheduler = registry.find("scheduler", name)
    traffic = TrafficMatrix.from_pairs(control.gpus, src, dst, demand)
    return planned(scheduler(scheduler.Options()), control, traffic, None)


def test_with_as_many_links_up_as_gpus_it_connects_what_one_large_switch_does(build, registry):
    """The least capacity / demand of random traffic is that of `sip-ocs`, which is the best possible."""
    rng = np.random.default_rng(1)
    src = np.repeat(np.arange(12), 3)
    dst = (src + np.tile([1, 2, 5], 12)) % 12
    demand = rng.uniform(1, 5, 36)
    ratios = []
    for name, scheduler in (("sip-ocs", "ocs-exact"), ("sip-ocs-clos", "clos-exact")):
        options = {"group_gpus": 4} if name.endswith("clos") else {}
        control = build(name, 12, 800.0, switches=8, **options).circuits
        plan = plan_for(registry, scheduler, control, src, dst, demand)
        ratios.append((plan.capacity_gbps(src, dst) / demand).min())
    assert ratios[0] == pytest.approx(ratios[1])


def test_half_the_links_up_halve_what_a_group_sends(registry):
    """Two switches, 0->2 and 1->3 from one group of 2: with two links up 2 circuits each, with one 1."""
    for uplinks, gbps in ((2, 20.0), (1, 10.0)):
        plan = plan_for(registry, "clos-exact", clos(uplinks=uplinks), [0, 1], [2, 3], [1.0, 1.0])
        assert plan.gbps.tolist() == [gbps, gbps]
        assert plan.bound_ratio == pytest.approx(20.0)


def test_plans_reach_the_best_ratio_that_exists():
    """Against all numbers of circuits, for traffic in which every pair can have one."""
    control = clos(switches=3, uplinks=1)
    src, dst = np.array([0, 0, 1, 2, 3]), np.array([1, 2, 3, 3, 0])
    counters, limits = control.counters(src, dst), control.limits
    rng = np.random.default_rng(7)
    for _ in range(5):
        demand = rng.uniform(1, 4, 5)
        best = 0.0
        for counts in itertools.product(range(1, 4), repeat=5):
            used = np.bincount(counters.ravel(), weights=np.repeat(counts, 4), minlength=len(limits))
            if (used <= limits).all():
                best = max(best, (np.array(counts) / demand).min())
        found = max_min_circuits(demand, counters, limits)
        assert (found / demand).min() == pytest.approx(best)


def test_what_the_counts_allow_can_be_dealt_out_to_the_switches():
    """On 4 GPUs in groups of 2, two switches with one link up: every allowed set of circuits has a way."""
    control, checked = clos(), 0
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    for chosen in itertools.combinations(pairs, 4):
        src, dst = np.array(chosen, np.int32).T
        try:
            control.check(CircuitPlan(gpus=4, src=src, dst=dst, gbps=np.full(4, 10.0)))
        except PluginError:
            continue
        checked += 1
        assert any(
            all(
                _one_switch_holds([pair for pair, on in zip(chosen, ways, strict=True) if on == k])
                for k in (0, 1)
            )
            for ways in itertools.product((0, 1), repeat=4)
        )
    assert checked > 10


def _one_switch_holds(pairs):
    """No group of two GPUs, with its one link, twice at either end."""
    return all(len({pair[side] // 2 for pair in pairs}) == len(pairs) for side in (0, 1))


def test_more_links_up_than_there_are_is_refused_with_the_group():
    plan = CircuitPlan(gpus=4, src=[0, 1], dst=[2, 3], gbps=[20.0, 10.0])
    with pytest.raises(PluginError, match="3 circuits at the switches of group 0, which has 2"):
        clos().check(plan)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"group_gpus": 4, "uplinks": 5}, r"uplinks must be at most 4 \(group_gpus\), got 5"),
        ({"interval_us": 100}, "interval_us must exceed reconfiguration_us"),
        ({"interval_us": 20_000, "relay": True}, "relay is for circuits that are set once"),
        ({"reconfiguration_us": 10}, "reconfiguration_us has no effect"),
    ],
)
def test_impossible_networks_are_refused_in_one_line(build, options, told):
    with pytest.raises(ConfigError, match=told):
        build("sip-ocs-clos", 16, **options)


def test_who_waits_comes_next(build, registry):
    """GPU 0 has one circuit and asks for two: for GPU 2, which wants ten times as much, then for GPU 1."""
    control = build("sip-ocs-clos", 8, switches=1, group_gpus=4, interval_us=20_000.0).circuits
    exact = registry.find("scheduler", "clos-exact")
    traffic, plan, peers = TrafficMatrix.from_pairs(8, [0, 0], [1, 2], [1.0, 10.0]), None, []
    for _ in range(3):
        plan = planned(exact(exact.Options()), control, traffic, plan)
        peers.append(plan.dst.tolist())
    assert peers == [[2], [1], [2]]
