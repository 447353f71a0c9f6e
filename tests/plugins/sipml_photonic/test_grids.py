"""Networks in parts: who has a circuit with whom, and that each part is planned for itself."""

import numpy as np
import pytest

from sipml_core.errors import ConfigError, PluginError
from sipml_core.model import CircuitPlan, TrafficMatrix
from sipml_core.scheduling import planned


def scheduler_of(registry, name):
    scheduler = registry.find("scheduler", name)
    return scheduler(scheduler.Options())


def test_rows_and_columns_of_rings_join_all(build, crossed):
    """4 x 4: 4 rows and 4 columns. 0 and 1 share a row; 0 reaches 5 by the corner 1, which forwards."""
    fabric = build("sip-ring-2d", 16, 200.0)
    assert len(fabric.circuits.parts) == 8
    assert list(crossed(fabric, 0, 1)) == ["egress 0", "circuit 0->1", "ingress 1"]
    assert list(crossed(fabric, 0, 5)) == [
        "egress 0", "circuit 0->1", "ingress 1", "egress 1", "circuit 1->5", "ingress 5",
    ]  # fmt: skip


def test_a_gpus_wavelengths_are_divided_between_its_rings(build, time_us):
    """8 wavelengths of 25 Gbps, 4 on each ring, 2 each way. Alone in its row, 0 -> 1 gets all 4 of the row's:
    1 MB at 100 Gbps in 80 us. With three quarters in the row, 6: at 150."""
    assert time_us(build("sip-ring-2d", 16, 200.0), {(0, 1): 1e6}, "ring-fast") == pytest.approx(80.0)
    wide = build("sip-ring-2d", 16, 200.0, row_share=0.75)
    assert time_us(wide, {(0, 1): 1e6}, "ring-fast") == pytest.approx(1e6 / 18_750)


def test_beyond_the_reach_a_ring_takes_several_circuits(build, crossed):
    """Reach 2 on a ring of 10: 0 to 5 by 2 and 4; 0 to 8 in one, backwards."""
    fabric = build("sip-ring-2d", 20, 800.0, shape=(2, 10), reach_hops=2)
    circuits = [name for name in crossed(fabric, 0, 5) if name.startswith("circuit")]
    assert circuits == ["circuit 0->2", "circuit 2->4", "circuit 4->5"]
    assert "circuit 0->8" in crossed(fabric, 0, 8)


def test_each_ring_is_planned_as_a_ring_alone(build, registry):
    """Row 1 of 2 x 6 gets what sip-ring of 6 GPUs with its wavelengths gets for the same traffic."""
    fabric = build("sip-ring-2d", 12, 400.0, shape=(2, 6))
    ring = build("sip-ring", 6, 200.0)
    rng = np.random.default_rng(5)
    src = np.repeat(np.arange(6), 2)
    dst = (src + np.tile([1, 2], 6)) % 6
    demand = rng.uniform(1, 9, 12)
    fast = scheduler_of(registry, "ring-fast")
    alone = planned(fast, ring.circuits, TrafficMatrix.from_pairs(6, src, dst, demand), None)
    both = planned(fast, fabric.circuits, TrafficMatrix.from_pairs(12, src + 6, dst + 6, demand), None)
    assert both.capacity_gbps(src + 6, dst + 6).tolist() == alone.capacity_gbps(src, dst).tolist()
    assert alone.gbps.sum() > 0
    assert both.bound_ratio == alone.bound_ratio


def test_rings_with_the_same_traffic_are_planned_once(build, registry):
    """Three of four rows of 4 x 4 send the same, the last twice as much to one; no column sends: 3 plans."""
    asked = []

    class Counting(registry.find("scheduler", "ring-fast")):
        def plan(self, control, traffic, previous):
            asked.append(traffic.demand.tolist())
            return super().plan(control, traffic, previous)

    fabric, here = build("sip-ring-2d", 16, 400.0), np.arange(16)
    there = here // 4 * 4 + (here + 1) % 4
    demand = np.where(here == 12, 2.0, 1.0)
    plan = planned(Counting(Counting.Options()), fabric.circuits, matrix(here, there, demand), None)
    assert sorted(asked) == [[], [1.0, 1.0, 1.0, 1.0], [2.0, 1.0, 1.0, 1.0]]
    row = plan.capacity_gbps(here, there).reshape(4, 4)
    assert (row[:3] == row[0]).all()
    assert row.min() > 0


def matrix(src, dst, demand):
    return TrafficMatrix.from_pairs(16, src, dst, demand)


def test_a_plan_that_does_not_say_its_parts_is_refused(build):
    fabric = build("sip-ring-2d", 16, 200.0)
    with pytest.raises(PluginError, match="does not say what each part"):
        fabric.circuits.check(CircuitPlan(gpus=16, src=[0], dst=[1], gbps=[25.0]))


def test_small_switches_join_gpus_that_differ_in_one_dimension(build, crossed, time_us):
    """3 x 3, one link of 100 Gbps to each level. 0 to 4 by GPU 1: 1 MB in 80 us over two circuits."""
    fabric = build("sip-ocs-bcube", 9, 200.0, links=2)
    assert fabric.words.notes == ("6 switches of 3 ports, instead of 2 of 9",)
    assert "circuit 0->1" in crossed(fabric, 0, 4)
    assert "circuit 1->4" in crossed(fabric, 0, 4)
    assert time_us(fabric, {(0, 4): 1e6}, "ocs-exact") == pytest.approx(80.0)


def test_gpus_of_a_rail_have_circuits_and_those_of_a_server_a_switch(build, crossed, time_us):
    """Two servers of 8. Alone on its rail a pair gets both links of 200 Gbps: 1 MB in 20 us."""
    fabric = build("sip-rails", 16, 1200.0)
    assert list(crossed(fabric, 3, 7)) == ["egress 3", "3 to its server", "server to 7", "ingress 7"]
    assert list(crossed(fabric, 3, 11)) == ["egress 3", "circuit 3->11", "ingress 11"]
    assert list(crossed(fabric, 3, 12)) == [
        "egress 3", "3 to its server", "server to 4", "ingress 4", "egress 4", "circuit 4->12", "ingress 12",
    ]  # fmt: skip
    assert time_us(fabric, {(3, 11): 1e6}, "ocs-exact") == pytest.approx(20.0)


@pytest.mark.parametrize(
    ("name", "gpus", "options", "told"),
    [
        (
            "sip-ring-2d",
            1000,
            {"shape": (32, 32)},
            r"shape 32 x 32 holds 1024 GPUs, .* 1000: give shape = \[25, 40\], or",
        ),
        ("sip-ring-2d", 7, {}, "7 GPUs make no grid of rings .* nearest: cluster.gpus = 6 or 8"),
        ("sip-ring-2d", 16, {"shape": (2, 2, 4)}, "shape must be two sizes"),
        ("sip-ring-2d", 16, {"gbps": 30.0}, "at least two wavelengths of 25 Gbps"),
        (
            "sip-ocs-bcube",
            27,
            {"levels": 3},
            "links must be a multiple of the 3 levels, got 16; nearest: 15 or 18",
        ),
        ("sip-ocs-bcube", 7, {}, "7 GPUs make no BCube of 2 dimensions"),
        ("sip-rails", 20, {}, "whole servers of 8 .*got 20; nearest: 16 or 24"),
        ("sip-rails", 16, {"reconfiguration_us": 5}, "has no effect on circuits that are set once"),
    ],
)
def test_impossible_networks_are_refused_in_one_line(build, name, gpus, options, told):
    gbps = options.pop("gbps", 800.0)
    with pytest.raises(ConfigError, match=told) as refusal:
        build(name, gpus, gbps, **options)
    assert "\n" not in str(refusal.value)
