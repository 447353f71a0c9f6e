"""What `plan` returns, on cases worked by hand."""

import re
from pathlib import Path

import attrs
import numpy as np
import pytest
from sipml_ring import RingCircuits, plan
from sipml_ring.ring_planning import plan_with

from sipml_core.errors import ConfigError, PluginError
from sipml_core.model.traffic import TrafficMatrix


def counts(made):
    pairs = zip(made.src.tolist(), made.dst.tolist(), strict=True)
    return dict(zip(pairs, made.count.tolist(), strict=True))


def pairs(gpus, demands):
    src, dst = zip(*demands, strict=True)
    return TrafficMatrix.from_pairs(gpus, src, dst, list(demands.values()))


def test_three_arcs_that_overlap_pairwise_need_three_wavelengths():
    """0->2, 1->0, 2->1 with 2 wavelengths each way. Counter-clockwise each spans 1 segment and gets both.
    Clockwise each spans 2 of 3 segments and any two overlap: load 2 would allow one each, but on 2 indices
    end to end only two of the three fit. So 2 continuous, 3 converted."""
    traffic = pairs(3, {(0, 2): 1.0, (1, 0): 1.0, (2, 1): 1.0})
    strict, loose = (plan(traffic, wavelengths=4, wavelength=rule) for rule in ("continuous", "converted"))
    assert sorted(made[0] for made in counts(strict).values()) == [0, 1, 1]
    assert strict.minimum_ratio == 2 * 25.0
    assert counts(loose) == {(0, 2): [1, 2], (1, 0): [1, 2], (2, 1): [1, 2]}
    assert loose.minimum_ratio == 3 * 25.0


def test_one_segment_is_shared_by_demand():
    """Reach 1, one direction in use: the neighbour gets all W/2."""
    traffic = pairs(8, {(0, 1): 3.0, (1, 2): 5.0})
    assert counts(plan(traffic, wavelengths=8, reach_hops=1)) == {(0, 1): [4, 0], (1, 2): [4, 0]}


@pytest.mark.parametrize("algorithm", ["ring-fast", "ring-ilp", "ring-mcf"])
def test_a_large_demand_is_not_starved(algorithm):
    """Demands 1.0, 0.5, 0.1 over one segment with 10 wavelengths. ceil(t d): t = 6 needs 6 + 3 + 1 = 10, t
    just above 6 needs 7 + 4 + 1. The public code of the paper gives the largest demand 0."""
    traffic = pairs(40, {(0, 3): 1.0, (1, 2): 0.5, (0, 2): 0.1})
    made = counts(plan(traffic, wavelengths=20, algorithm=algorithm))
    assert made[0, 3][0] >= 5
    if algorithm != "ring-mcf":
        assert made == {(0, 2): [1, 0], (0, 3): [6, 0], (1, 2): [3, 0]}


@pytest.mark.parametrize("gpus", [2, 3, 5])
@pytest.mark.parametrize("wavelengths", [1, 2, 7])
def test_small_rings_and_odd_wavelengths_work(gpus, wavelengths):
    """All to all. With one wavelength in all nothing runs counter-clockwise."""
    traffic = TrafficMatrix.from_dense(np.ones((gpus, gpus)) - np.eye(gpus))
    made = plan(traffic, wavelengths=wavelengths)
    assert made.control.clockwise + made.control.counterclockwise == wavelengths
    assert (made.circuit_direction == 1).any() == (wavelengths > 1)
    assert len(made.src) + len(made.unserved) == traffic.pairs


def test_a_ring_of_one_and_no_traffic_have_empty_plans():
    for gpus in (1, 6):
        made = plan(TrafficMatrix.from_pairs(gpus, [], [], []), wavelengths=4)
        assert len(made.src) == 0
        assert made.minimum_ratio == 0.0
        assert made.bound_ratio == 0.0


def test_more_peers_than_wavelengths_are_named_and_come_next():
    """Reach 1 hop of a 6 GPU ring, but one wavelength clockwise and none back: 0->1 beside 0->2 (which spans
    the same segment): one of them has to wait, and is first in the next plan."""
    traffic = pairs(6, {(0, 1): 1.0, (0, 2): 5.0})
    first = plan(traffic, wavelengths=1)
    assert first.unserved_pairs == [(0, 2)]
    second = plan(traffic, wavelengths=1, previous=first)
    assert second.unserved_pairs == [(0, 1)]
    assert plan(traffic, wavelengths=1, previous=second).unserved_pairs == [(0, 2)]


def test_circuits_nobody_asks_for_stay_while_nobody_needs_them():
    """2->3 keeps carrying though 0->1 asks alone: they share no segment. Once 2->4 asks, it yields."""
    first = plan(pairs(8, {(0, 1): 1.0, (2, 3): 1.0}), wavelengths=8, reach_hops=3)
    second = plan(pairs(8, {(0, 1): 1.0}), wavelengths=8, reach_hops=3, previous=first)
    assert counts(second)[2, 3] == [4, 0]
    assert not second.dark_us.any()
    third = plan(pairs(8, {(0, 1): 1.0, (2, 4): 1.0}), wavelengths=8, reach_hops=3, previous=second)
    assert (2, 3) not in counts(third)
    assert counts(third)[2, 4] == [4, 0]


def test_small_changes_leave_most_circuits_alone():
    """Demands that drift by 10 % need about that share of the circuits elsewhere."""
    rng = np.random.default_rng(0)
    src = np.repeat(np.arange(64), 8)
    dst = (src + np.tile([1, 2, 3, 4, -1, -2, -3, -4], 64)) % 64
    demand = rng.uniform(1, 2, len(src))
    first = plan(TrafficMatrix.from_pairs(64, src, dst, demand), wavelengths=64)
    drifted = TrafficMatrix.from_pairs(64, src, dst, demand * rng.uniform(0.95, 1.05, len(src)))
    second = plan(drifted, wavelengths=64, previous=first)
    assert second.kept_gbps.sum() > 0.85 * second.gbps.sum()
    assert second.minimum_ratio == pytest.approx(plan(drifted, wavelengths=64).minimum_ratio)


def test_rows_list_every_wavelength():
    traffic = pairs(8, {(0, 1): 3.0, (2, 1): 1.0})
    rows = list(plan(traffic, wavelengths=4, reach_hops=3).rows())
    assert [(row["src"], row["dst"], row["clockwise"], row["counterclockwise"]) for row in rows] == [
        (0, 1, [0, 1], []),
        (2, 1, [], [0, 1]),
    ]
    assert [row["capacity_gbps"] for row in rows] == [50.0, 50.0]


@pytest.mark.parametrize("gpus", [2, 8, 64, 80])
def test_a_plan_can_be_drawn(gpus):
    from matplotlib.figure import Figure

    src = np.arange(gpus)
    traffic = TrafficMatrix.from_pairs(gpus, src, (src + 1) % gpus, np.ones(gpus))
    axes = Figure().add_subplot()
    plan(traffic, wavelengths=6).draw(axes)
    assert len(axes.collections) >= 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"wavelengths": 0}, "wavelengths must be at least 1"),
        ({"reach_hops": 2}, r"\(0, 4\) is out of reach: 4 hops clockwise, 6 counter-clockwise"),
        ({"algorithm": "ring-fsat"}, "did you mean 'ring-fast'"),
        ({"wavelength": "contiguous"}, "did you mean 'continuous'"),
        ({"channel_gbps": float("nan")}, "must be positive"),
    ],
)
def test_impossible_requests_are_refused_by_name(changes, message):
    traffic = pairs(10, {(0, 4): 1.0})
    with pytest.raises(ConfigError, match=message):
        plan(traffic, **({"wavelengths": 4} | changes))


def test_a_plan_of_another_ring_cannot_be_continued():
    traffic = pairs(10, {(0, 4): 1.0})
    with pytest.raises(ConfigError, match="of another ring: clockwise was 2, is 3"):
        plan(traffic, wavelengths=6, previous=plan(traffic, wavelengths=4))


def test_the_example_in_the_documentation_runs():
    """Its last line promises that the same demand again leaves nothing dark."""
    text = (Path(__file__).parents[3] / "docs" / "sip-ring.md").read_text(encoding="utf-8")
    names = {}
    exec(re.search(r"```python\n(.*?)```", text, re.DOTALL)[1], names)
    assert 0 < names["ring"].minimum_ratio <= names["ring"].bound_ratio
    assert not names["again"].dark_us.any()


@pytest.mark.parametrize("period", [4, 6])
def test_the_bound_of_a_folded_ring_is_that_of_the_whole(period):
    """12 GPUs, reach 2: 0 -> 1 and, two segments long, the last GPU of a period to the second of the next
    meet on the first segment of each period. 20 wavelengths for two demands of 1: 10 each, 250 Gbps."""
    src = np.concatenate([np.arange(0, 12, period), np.arange(period - 1, 12, period)])
    dst = (src + np.repeat([1, 2], 12 // period)) % 12
    traffic = TrafficMatrix.from_pairs(12, src, dst, np.ones(len(src)))
    control = RingCircuits.of(12, 40, circuit_gbps=25.0, reach_hops=2)
    first = TrafficMatrix.from_pairs(12, [0, period - 1], [1, period + 1], [1.0, 1.0])
    whole = plan_with("ring-fast", control, traffic, None)
    folded = plan_with("ring-fast", control.over(period), first, None)
    assert whole.bound_ratio == folded.bound_ratio == 250.0
    assert whole.minimum_ratio == folded.minimum_ratio == 250.0


def test_demands_too_small_to_divide_by_are_refused():
    """Wavelengths over a demand of 1e-308 overflow: one line, and no endless search."""
    traffic = TrafficMatrix.from_pairs(6, [0, 1], [1, 2], [1e-308, 2e-308])
    with pytest.raises(ConfigError, match="must be at least 1e-200, got 1e-308"):
        plan(traffic, wavelengths=8)


def test_a_plan_that_keeps_every_circuit_is_that_in_force_for_other_demands():
    """Two wavelengths clockwise, one for each neighbour, whatever they ask for: nothing is dark then."""
    asked = {(0, 1): 2.0, (1, 2): 3.0}
    first = plan(pairs(8, asked), wavelengths=2, reach_hops=1, reconfiguration_us=25.0)
    later = pairs(8, {pair: demand + 0.5 for pair, demand in asked.items()})
    second = plan(later, wavelengths=2, reach_hops=1, previous=first, reconfiguration_us=25.0)
    assert second.stays(first)
    assert (first.dark_us.tolist(), second.dark_us.tolist()) == ([25.0, 25.0], [0.0, 0.0])
    assert second.kept_gbps.tolist() == second.gbps.tolist() == [25.0, 25.0]
    assert (second.traffic, second.demand.tolist()) == (later, [2.5, 3.5])
    assert (second.minimum_ratio, first.minimum_ratio) == (25 / 3.5, 25 / 3.0)
    third = plan(pairs(8, {(0, 1): 1.0}), wavelengths=2, reach_hops=1, previous=second)
    assert (counts(third), third.stays(second)) == (counts(second), True)
    other = plan(pairs(8, {(2, 3): 1.0}), wavelengths=2, reach_hops=1, previous=second)
    assert not other.stays(second)


def test_what_is_no_traffic_matrix_is_refused():
    with pytest.raises(ConfigError, match=r"must be a TrafficMatrix.*got \[\[0, 1\], \[1\]\]"):
        plan([[0, 1], [1]], wavelengths=4)


def test_pairs_are_told_apart_by_both_ends():
    """Three pairs, then others of the same senders with the same demands, in arrays that are shared."""
    first = pairs(8, {(0, 1): 1.0, (1, 2): 1.0, (2, 3): 1.0})
    second = attrs.evolve(first, dst=np.array([2, 3, 4], dtype=np.int32))
    before = plan(first, wavelengths=4)
    after = plan(second, wavelengths=4, previous=before)
    assert after.traffic is second
    assert set(zip(second.src.tolist(), second.dst.tolist(), strict=True)) <= set(counts(after))


def test_waits_are_of_pairs_and_not_of_senders():
    """Too few wavelengths for pairs of one sender: equal matrices get equal plans, however made."""
    first = pairs(9, {(0, 1): 1.0, (0, 2): 1.0, (0, 3): 1.0})
    before = plan(first, wavelengths=2, reach_hops=3)
    others = pairs(9, {(0, 2): 1.0, (0, 3): 1.0, (0, 8): 1.0})
    again = attrs.evolve(first, dst=others.dst)
    made, remade = (plan(each, wavelengths=2, reach_hops=3, previous=before) for each in (others, again))
    assert counts(made) == counts(remade)
    assert made.unserved.tolist() == remade.unserved.tolist()
    assert made.waited.tolist() == remade.waited.tolist()


@pytest.mark.parametrize("name", ["direction", "index", "dst"])
def test_circuits_whose_columns_differ_in_length_are_refused(name):
    """They are read in C, by the length of one."""
    circuits = plan(pairs(8, {(0, 1): 3.0, (1, 2): 5.0}), wavelengths=8).circuits
    with pytest.raises(PluginError, match="circuits"):
        attrs.evolve(circuits, **{name: getattr(circuits, name)[:1]})
