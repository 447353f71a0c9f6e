"""Shares of ports by demand, against the planner of whole circuits and by hand."""

import numpy as np
import pytest
from sipml_ocs.ocs_planning import plan

from sipml_core.model import TrafficMatrix
from sipml_core.searching.followedcircuits import port_shares


def shares(demand, sender, receiver, port, before=None):
    demand = np.array(demand, dtype=float)
    before = np.zeros(len(demand)) if before is None else np.array(before, dtype=float)
    return port_shares(demand, np.array(sender), np.array(receiver), float(port), before)


def test_ports_are_divided_by_demand_and_nobody_is_left_out():
    """Eight circuits at port 0: one to the least, the rest 1 to 6; port 4 has a circuit left for nobody."""
    found = shares([1e-9, 10.0, 60.0], [0, 0, 0], [1, 2, 3], 8)
    assert found == pytest.approx([1.0, 1.0, 6.0])


def test_where_not_all_can_have_one_shares_are_parts():
    assert shares([1.0, 1.0, 2.0], [0, 0, 0], [1, 2, 3], 2) == pytest.approx([0.5, 0.5, 1.0])


def test_what_a_full_port_leaves_goes_to_others():
    """GPU 1 sends to 2, as 0 does, whose port is full; 1 sends to 3 what is left of its own."""
    found = shares([3.0, 1.0, 1.0], [0, 1, 1], [2, 2, 3], 4)
    assert found == pytest.approx([3.0, 1.0, 3.0], rel=1e-3)


def test_no_port_is_more_than_full_and_who_asks_for_nothing_keeps_what_is_free():
    rng = np.random.default_rng(3)
    for _ in range(20):
        sender, receiver = np.divmod(rng.permutation(64)[:30], 8)
        demand = rng.lognormal(0, 2, 30) * (rng.random(30) < 0.7)
        before = rng.random(30) * 4
        found = shares(demand, sender, receiver, 16, before)
        for ends in (sender, receiver):
            assert np.bincount(ends, found).max() <= 16 * (1 + 1e-6)
        assert (found[demand == 0] <= before[demand == 0] + 1e-9).all()


def test_the_least_ratio_is_that_of_whole_circuits_but_for_rounding():
    """With 64 circuits a port the best plan of whole ones is within a few of the best of parts."""
    rng = np.random.default_rng(5)
    dense = rng.lognormal(0, 1, (6, 6))
    np.fill_diagonal(dense, 0.0)
    traffic = TrafficMatrix.from_dense(dense)
    exact = plan(traffic, switches=64, link_gbps=1.0).minimum_ratio
    found = shares(traffic.demand, traffic.src, traffic.dst, 64)
    assert (found / traffic.demand).min() == pytest.approx(exact, rel=0.1)
    assert (found / traffic.demand).min() >= exact * (1 - 1e-3)
