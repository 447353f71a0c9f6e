"""What is *not* a law, with the smallest examples found: docs/model.md shows them to the reader."""

import numpy as np
import pytest

from sipml_core.model.taskbuilder import TaskBuilder


def five_tasks():
    """Two GPUs. Task: GPU, time; priority = order. b -> c sends 500 bytes, d -> e sends 125."""
    builder = TaskBuilder(2)
    gpu, time_us = [0, 1, 0, 0, 1], [4, 1, 2, 1, 3]
    _, b, c, d, e = builder.tasks(gpu, time_us, np.arange(5), np.zeros(5, int))
    to_c, to_e = builder.transfers([1, 0], [0, 1], [500, 125], [2, 4])
    builder.depend([b, d], [to_c, to_e])
    builder.depend([to_c, to_e], [c, e])
    return builder.build()


def test_more_bandwidth_can_be_slower(timeline_of):
    """At 1 Gbps (125 bytes/us) c's data arrives at 5, so d runs at 4, e at 6..9: 9 us. At 2 Gbps they
    arrive at 3, c runs before d at 4, d ends at 7, e runs 7.5..10.5 (Graham 1969: list scheduling)."""
    assert timeline_of(five_tasks(), "elect-flat", 1)[0].total_us == pytest.approx(9.0)
    assert timeline_of(five_tasks(), "elect-flat", 2)[0].total_us == pytest.approx(10.5)


def five_flows():
    """0->1: 1, 0->2: 2, 0->3: 1, 1->0: 2, 1->2: 2, in units of 125 bytes."""
    builder = TaskBuilder(4)
    builder.transfers([0, 0, 0, 1, 1], [1, 2, 3, 0, 2], 125 * np.array([1, 2, 1, 2, 2]), np.zeros(5, int))
    return builder.build()


def test_fair_sharing_is_not_optimal_for_a_group_of_flows(timeline_of):
    """Busiest ports carry 4 units, so shares in proportion to sizes end everything at 4 us. Fair shares
    are 1/3 at GPU 0 until 3 us; then 0->2 has 1 unit left, gets 1/2 until 4, and ends at 4.5 us."""
    assert timeline_of(five_flows(), "elect-flat", 1)[0].total_us == pytest.approx(4.5)


def test_circuits_in_proportion_to_demand_can_beat_the_fair_switch(timeline_of):
    """SiP-OCS with 4 circuits of B/4 per GPU gives each pair its proportion: 4 us, 11 % less than 4.5."""
    timeline, _ = timeline_of(five_flows(), "sip-ocs", 1, switches=4)
    assert timeline.total_us == pytest.approx(4.0)
