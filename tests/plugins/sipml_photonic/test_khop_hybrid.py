"""Switched transceivers that pass dead GPUs, and packets beside circuits. 800 Gbps move 1 MB in 10 us."""

import numpy as np
import pytest

from sipml_core.engine import simulate
from sipml_core.errors import ConfigError, InfeasibleError, PluginError
from sipml_core.model import CircuitPlan, Network, TrafficMatrix
from sipml_core.scheduling import driven, planned
from sipml_core.testing.jobs import transfers_only


def test_a_transceiver_passes_dead_slots_within_its_reach(build, crossed):
    """Slots 3 and 4 are dead: GPU 3 is in slot 5, three up from GPU 2's. With reach 2 nothing passes."""
    fabric = build("sip-khop", 8, reach=3, dead=(3, 4))
    assert crossed(fabric, 2, 3) == {"egress 2": 1.0, "circuit 2->3": 1.0, "ingress 3": 1.0}
    assert fabric.words.notes == ()
    cut = build("sip-khop", 8, reach=2, dead=(3, 4))
    assert cut.words.notes == ("no circuit passes from GPU 2 to GPU 3: 2 dead slots lie between",)


def test_neighbours_have_half_of_the_bandwidth_each_way(build, time_us):
    """Everybody sends 1 MB up and 1 MB down, over 400 Gbps each: 20 us, past a dead GPU as well."""
    for dead in ((), (3,)):
        fabric = build("sip-khop", 8, reach=2, dead=dead)
        sizes = {(i, (i + step) % 8): 1e6 for i in range(8) for step in (1, -1)}
        assert time_us(fabric, sizes, "khop-matching") == pytest.approx(20.0)


def test_who_has_no_circuit_goes_by_its_card(build, crossed, time_us):
    """0 -> 1 sends most and has the transceiver; 0 -> 2 goes by a card of 100 Gbps: 0.1 MB in 8 us. 0 -> 4 is
    out of reach in any case."""
    fabric = build("sip-khop", 8, reach=2, card_gbps=100)
    assert list(crossed(fabric, 0, 4)) == ["egress 0", "card of 0 out", "card of 4 in", "ingress 4"]
    assert time_us(fabric, {(0, 1): 1e6}, "khop-matching") == pytest.approx(20.0)
    assert time_us(fabric, {(0, 1): 0.2e6, (0, 2): 0.1e6}, "khop-matching") == pytest.approx(8.0)


def test_without_cards_a_second_partner_cannot_be_served(build, time_us):
    with pytest.raises(InfeasibleError, match="0->2"):
        time_us(build("sip-khop", 8, reach=2), {(0, 1): 2e6, (0, 2): 1e6}, "khop-matching")


def test_who_waits_comes_next(build, registry):
    """0 asks for 1 and, ten times as much, for 2: one plan each in turn, though its queue never moves."""
    control = build("sip-khop", 8, reach=2, card_gbps=100, interval_us=100.0).circuits
    matching = registry.find("scheduler", "khop-matching")
    traffic, plan, partners = TrafficMatrix.from_pairs(8, [0, 0], [1, 2], [1.0, 10.0]), None, []
    for _ in range(4):
        plan = planned(matching(matching.Options()), control, traffic, plan)
        partners.append(plan.dst[plan.src == 0].tolist())
    assert partners == [[2], [1], [2], [1]]


def test_the_first_in_a_queue_is_not_kept_out_by_what_waits_behind_it(build, registry):
    """By sender's queues: 0.1 MB to GPU 1 is first, 10 MB to GPU 2 behind it would win every plan."""
    tasks = transfers_only(8, np.array([0, 0], np.int32), np.array([1, 2], np.int32), np.array([1e5, 1e7]))
    matching = registry.find("scheduler", "khop-matching")
    scheduler, window = matching(matching.Options()), registry.find("estimator", "window")
    fabric = build("sip-khop", 8, reach=2, interval_us=100.0)
    network, driver = driven(fabric, scheduler, window(window.Options()), tasks, Network.of(fabric, tasks))
    timeline = simulate(tasks, network, driver=driver, queue="source", max_wall_s=20.0)
    assert timeline.end_us[0] < timeline.end_us[1] < np.inf


def test_a_transceiver_with_two_partners_is_refused(build):
    """1 -> 3 and 2 -> 3 both need the downward one of GPU 3."""
    control = build("sip-khop", 8, reach=2).circuits
    control.check(CircuitPlan(gpus=8, src=[1, 2], dst=[2, 3], gbps=[400.0, 400.0]))
    with pytest.raises(PluginError, match="one transceiver of GPU 3 to GPUs 1 and 2"):
        control.check(CircuitPlan(gpus=8, src=[1, 2], dst=[3, 3], gbps=[400.0, 400.0]))


def test_heavy_pairs_get_circuits_and_light_ones_packets(build, time_us):
    """One link of 400 Gbps, 400 Gbps of packets. 0 -> 1 sends 4 MB by its circuit in 80 us; 0 -> 2 sends 2 MB
    by packets in 40. On one switch of 800 Gbps both would take 60 us together."""
    fabric = build("hybrid", 4, links=1)
    assert time_us(fabric, {(0, 1): 4e6, (0, 2): 2e6}, "ocs-exact") == pytest.approx(80.0)
    assert time_us(fabric, {(0, 1): 1e6, (0, 2): 4e6}, "ocs-exact") == pytest.approx(80.0)


def test_what_is_small_goes_by_packets_though_a_circuit_is_free(build, time_us):
    """With a quarter of the bandwidth for packets: 1 MB at 200 Gbps takes 40 us; by circuits at 600, 13.3."""
    by_circuit = build("hybrid", 4, links=1, circuit_share=0.75)
    assert time_us(by_circuit, {(0, 1): 1e6}, "ocs-exact") == pytest.approx(1e6 / 75_000)
    small = build("hybrid", 4, links=1, circuit_share=0.75, packets_below_bytes="2 MB")
    assert time_us(small, {(0, 1): 1e6}, "ocs-exact") == pytest.approx(40.0)
    assert np.isclose(small.link_gbps.sum(), 8 * 600 + 8 * 200)


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("sip-khop", {"dead": (9,)}, "dead names slot 9, but 8 GPUs"),
        ("sip-khop", {"dead": (1, 1)}, "dead names slot 1 twice"),
        ("sip-khop", {"dead": 3}, "dead must be a list of slots"),
        ("sip-khop", {"interval_us": 50}, "interval_us must exceed reconfiguration_us"),
        ("hybrid", {"circuit_share": 1.0}, "circuit_share must be from 0.01 to 0.99"),
        ("hybrid", {"packets_below_bytes": -1}, "packets_below_bytes"),
    ],
)
def test_impossible_networks_are_refused_in_one_line(build, name, options, told):
    with pytest.raises(ConfigError, match=told) as refusal:
        build(name, 8, **options)
    assert "\n" not in str(refusal.value)
