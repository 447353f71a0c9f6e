"""Plans by hand: circuits, leftovers, stability, waiting, refusals."""

import re
from pathlib import Path

import numpy as np
import pytest
from sipml_ocs import OcsPlan, plan
from sipml_ocs.ocs_planning import _by_claim

from sipml_core.errors import ConfigError, PluginError
from sipml_core.model.traffic import TrafficMatrix


def traffic(gpus, demands):
    """From {(src, dst): demand}."""
    pairs = sorted(demands)
    return TrafficMatrix.from_pairs(
        gpus, [i for i, _ in pairs], [j for _, j in pairs], [demands[pair] for pair in pairs]
    )


def circuits(made):
    """{(src, dst): circuits}."""
    return {(int(i), int(j)): int(n) for i, j, n in zip(made.src, made.dst, made.circuits, strict=True)}


def test_circuits_follow_demand():
    """3 : 1 on 4 switches is 3 + 1, each at the same capacity per demand."""
    made = plan(traffic(3, {(0, 1): 3.0, (0, 2): 1.0}), switches=4, link_gbps=100)
    assert circuits(made) == {(0, 1): 3, (0, 2): 1}
    assert made.gbps.tolist() == [300.0, 100.0]
    assert made.minimum_ratio == made.bound_ratio == 100.0
    assert made.total_gbps == 400.0


def test_the_largest_demand_is_not_starved():
    """Demands 1, 0.5, 0.1 on 10 switches: at 6 circuits per demand they need 6 + 3 + 1 = 10. (The paper's
    public min-cost flow gives the largest nothing.)"""
    made = plan(traffic(4, {(0, 1): 1.0, (0, 2): 0.5, (0, 3): 0.1}), switches=10, link_gbps=1)
    assert circuits(made) == {(0, 1): 6, (0, 2): 3, (0, 3): 1}


def test_the_receiver_limits_too():
    """Three senders, one receiver of 6 links: 2 each."""
    made = plan(traffic(4, {(1, 0): 5.0, (2, 0): 5.0, (3, 0): 5.0}), switches=6, link_gbps=1)
    assert circuits(made) == {(1, 0): 2, (2, 0): 2, (3, 0): 2}


def test_leftover_ports_go_to_the_pair_with_the_least_capacity_per_demand():
    """Port 0 limits the ratio to 1. GPU 3 has 4 links for demands 2 and 1: 3 + 1 would leave the second
    at ratio 1, the first at 1.5; filling raises 2:1 (ratio 1, 1) to 3:1 at the tie, then has no port left."""
    made = plan(traffic(6, {(0, 1): 4.0, (3, 4): 2.0, (3, 5): 1.0}), switches=4, link_gbps=1)
    assert circuits(made) == {(0, 1): 4, (3, 4): 3, (3, 5): 1}


def test_one_pair_gets_every_switch():
    """More switches than peers: nothing idle that a demanded pair can use."""
    made = plan(traffic(2, {(0, 1): 7.0}), switches=16, link_gbps=10)
    assert circuits(made) == {(0, 1): 16}
    assert (made.port_map[:, 0] == 1).all()
    assert (made.port_map[:, 1] == -1).all()


@pytest.mark.parametrize("gpus", [1, 2, 3])
def test_no_demand_is_a_plan_without_circuits(gpus):
    made = plan(traffic(gpus, {}), switches=4, link_gbps=10)
    made.check()
    assert circuits(made) == {}
    assert made.minimum_ratio == np.inf
    assert made.bound_ratio is None


@pytest.mark.parametrize("switches", [1, 63, 64, 65, 130])
def test_any_number_of_switches_can_be_coloured(switches):
    """A full crossbar of 5; sets of switches cross the 64 bits of a word."""
    dense = np.ones((5, 5)) - np.eye(5)
    made = plan(TrafficMatrix.from_dense(dense), switches=switches, link_gbps=1)
    made.check()
    assert made.port_map.shape == (switches, 5)
    served = 20 if switches > 1 else 5  # of one switch, equal demands: everybody to the next
    assert len(made.circuits) == served
    assert made.circuits.min() >= switches // 4


def test_demands_of_any_size_are_planned():
    """Only ratios matter, even where the smallest is lost beside the largest."""
    made = plan(traffic(4, {(0, 1): 1e300, (0, 2): 5e299, (0, 3): 1e-300}), switches=4, link_gbps=1)
    assert circuits(made) == {(0, 1): 2, (0, 2): 1, (0, 3): 1}


class TestChanges:
    """As few changes against the previous plan as possible."""

    demands = {(0, 1): 3.0, (1, 2): 1.0, (2, 0): 2.0, (0, 2): 1.0}

    def test_the_first_plan_is_all_new(self):
        made = plan(traffic(3, self.demands), switches=4, link_gbps=10, reconfiguration_us=20)
        assert made.kept.tolist() == [0] * 4
        assert made.kept_gbps.tolist() == [0.0] * 4
        assert made.dark_us.tolist() == [20.0] * 4

    def test_the_same_demand_again_changes_nothing(self):
        first = plan(traffic(3, self.demands), switches=4, link_gbps=10)
        again = plan(
            traffic(3, self.demands), switches=4, link_gbps=10, previous=first, reconfiguration_us=20
        )
        assert np.array_equal(again.port_map, first.port_map)
        assert again.kept.tolist() == again.circuits.tolist()
        assert again.kept_gbps.tolist() == again.gbps.tolist()
        assert not again.dark_us.any()

    def test_only_new_circuits_are_dark(self):
        """0 -> 1 falls from 4 circuits to 2; the other links of GPU 0 turn to 2 and are dark."""
        first = plan(traffic(3, {(0, 1): 1.0}), switches=4, link_gbps=10)
        second = plan(
            traffic(3, {(0, 1): 1.0, (0, 2): 1.0}),
            switches=4, link_gbps=10, previous=first, reconfiguration_us=20,
        )  # fmt: skip
        assert circuits(second) == {(0, 1): 2, (0, 2): 2}
        assert second.kept.tolist() == [2, 0]
        assert second.kept_gbps.tolist() == [20.0, 0.0]
        assert second.dark_us.tolist() == [0.0, 20.0]

    def test_a_grown_pair_keeps_what_it_had_while_the_rest_is_dark(self):
        first = plan(traffic(3, {(0, 1): 1.0, (0, 2): 1.0}), switches=4, link_gbps=10)
        second = plan(
            traffic(3, {(0, 1): 3.0, (0, 2): 1.0}),
            switches=4, link_gbps=10, previous=first, reconfiguration_us=20,
        )  # fmt: skip
        assert second.gbps.tolist() == [30.0, 10.0]
        assert second.kept_gbps.tolist() == [20.0, 10.0]
        assert second.dark_us.tolist() == [20.0, 0.0]

    def test_circuits_without_demand_stay_where_nobody_needs_the_ports(self):
        """0 -> 1 is no longer demanded; 2 -> 3 touches none of its ports."""
        first = plan(traffic(4, {(0, 1): 1.0}), switches=2, link_gbps=10)
        second = plan(traffic(4, {(2, 3): 1.0}), switches=2, link_gbps=10, previous=first)
        second.check()
        assert circuits(second) == {(0, 1): 2, (2, 3): 2}
        assert second.kept.tolist() == [2, 0]

    def test_without_any_demand_all_stays(self):
        first = plan(traffic(3, self.demands), switches=4, link_gbps=10)
        idle = plan(traffic(3, {}), switches=4, link_gbps=10, previous=first)
        assert np.array_equal(idle.port_map, first.port_map)
        assert circuits(idle) == circuits(first)

    def test_ties_go_to_the_pair_that_had_more_before(self):
        """3 links for two equal demands: the odd one stays with 0 -> 2, though 0 -> 1 comes first."""
        first = plan(traffic(3, {(0, 1): 1.0, (0, 2): 2.0}), switches=3, link_gbps=10)
        assert circuits(first) == {(0, 1): 1, (0, 2): 2}
        second = plan(traffic(3, {(0, 1): 1.0, (0, 2): 1.0}), switches=3, link_gbps=10, previous=first)
        assert np.array_equal(second.port_map, first.port_map)


class TestCrowded:
    """More peers than switches: the largest demand first, and then whoever waited longest."""

    hub = {(0, 1): 5.0, (0, 2): 4.0, (0, 3): 3.0, (0, 4): 2.0, (0, 5): 1.0}

    def made(self, previous=None):
        return plan(traffic(6, self.hub), switches=2, link_gbps=1, previous=previous)

    def test_the_largest_demands_are_served_and_the_others_named(self):
        first = self.made()
        first.check()
        assert circuits(first) == {(0, 1): 1, (0, 2): 1}
        assert first.unserved_dst.tolist() == [3, 4, 5]
        assert first.unserved_plans.tolist() == [1, 1, 1]
        assert first.minimum_ratio == 0
        assert first.served_ratio == 1 / 5

    def test_what_waited_longest_is_next(self):
        """By hand: plan 2 serves 3 and 4, which waited one plan and want more than 5; plan 3 serves 5,
        which waited two, and 1, the largest of those that waited one; plan 4 serves 2 (two plans) and 3."""
        second = self.made(self.made())
        third = self.made(second)
        fourth = self.made(third)
        assert [p.dst.tolist() for p in (second, third, fourth)] == [[3, 4], [1, 5], [2, 3]]
        assert third.unserved_plans.tolist() == [2, 1, 1]

    def test_every_pair_is_served_in_time(self):
        """A pair with n competitors at its two ends waits at most n / switches plans."""
        rng = np.random.default_rng(7)
        dense = rng.lognormal(0, 4, (9, 9)) * (rng.random((9, 9)) < 0.9)
        np.fill_diagonal(dense, 0)
        demand = TrafficMatrix.from_dense(dense)
        switches, made = 2, None
        competitors = (
            np.bincount(demand.src, minlength=9)[demand.src]
            + np.bincount(demand.dst, minlength=9)[demand.dst]
            - 2
        )
        allowed = dict(zip(demand.key.tolist(), competitors / switches, strict=True))
        for _ in range(40):
            made = plan(demand, switches=switches, link_gbps=1, previous=made)
            made.check()
            waiting = made.unserved_src.astype(np.int64) * 9 + made.unserved_dst
            for key, plans in zip(waiting.tolist(), made.unserved_plans.tolist(), strict=True):
                assert plans <= allowed[key]

    def test_a_pair_that_stopped_asking_starts_anew(self):
        without = dict(self.hub)
        del without[0, 5]
        gone = plan(traffic(6, without), switches=2, link_gbps=1, previous=self.made())
        back = self.made(gone)
        assert dict(zip(back.unserved_dst.tolist(), back.unserved_plans.tolist(), strict=True))[5] == 1


@pytest.mark.parametrize(("seed", "longest"), [(0, 0), (1, 0), (2, 3), (3, 2**31 - 1)])
def test_claims_are_in_the_order_that_is_stated(seed, longest):
    """Plans waited, most first; demand, largest first; distance; number: as sorting by each in turn gives
    it, with and without ties, and where one number cannot hold all four."""
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, 2048, (2, 2500))
    demand = rng.lognormal(0, 1, len(src)) if seed % 2 else rng.integers(1, 4, len(src))
    demanded = TrafficMatrix.from_pairs(2048, src, np.where(src == dst, (dst + 1) % 2048, dst), demand)
    waited = rng.integers(0, longest + 1, demanded.pairs).astype(np.int32)
    waited[0] = longest
    distance = (demanded.dst - demanded.src) % 2048
    expected = np.lexsort((np.arange(demanded.pairs), distance, -demanded.demand, -waited.astype(float)))
    assert _by_claim(demanded, waited).tolist() == expected.tolist()


class TestRefusals:
    one = traffic(2, {(0, 1): 1.0})

    @pytest.mark.parametrize("switches", [0, -3, 2.5, "four"])
    def test_impossible_numbers_of_switches(self, switches):
        with pytest.raises(ConfigError, match=r"switches must be a whole number of at least 1"):
            plan(self.one, switches=switches, link_gbps=1)

    @pytest.mark.parametrize("gbps", [0, -1, float("nan"), float("inf")])
    def test_impossible_capacities(self, gbps):
        with pytest.raises(ConfigError, match="link_gbps must be positive"):
            plan(self.one, switches=1, link_gbps=gbps)

    def test_a_mistyped_algorithm_gets_the_nearest(self):
        with pytest.raises(ConfigError, match="did you mean 'ocs-exact'"):
            plan(self.one, switches=1, link_gbps=1, algorithm="ocs-exakt")

    def test_a_previous_plan_of_another_network(self):
        previous = plan(self.one, switches=2, link_gbps=1)
        with pytest.raises(ConfigError, match="2 GPUs and 2 switches, this one 2 and 1"):
            plan(self.one, switches=1, link_gbps=1, previous=previous)


def made_by_hand(**changes):
    """GPU 0 to GPU 1 on both of two switches, with some of it changed."""
    fields = {
        "gpus": 3,
        "src": [0],
        "dst": [1],
        "gbps": [2.0],
        "kept_gbps": [2.0],
        "dark_us": [0.0],
        "traffic": traffic(3, {(0, 1): 1.0}),
        "link_gbps": 1.0,
        "circuits": [2],
        "kept": [0],
        "port_map": [[1, -1, -1], [1, -1, -1]],
        "unserved_src": [],
        "unserved_dst": [],
        "unserved_plans": [],
    }
    return OcsPlan(**(fields | changes))


class TestCheck:
    def test_a_sound_plan_passes(self):
        made_by_hand().check()

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"circuits": [1], "gbps": [1.0]}, "port maps do not hold"),
            ({"gbps": [1.0]}, "capacities are not circuits"),
            ({"kept": [3]}, "more circuits kept"),
            (
                {"port_map": [[1, -1, -1], [-1, -1, -1]], "circuits": [1], "gbps": [1.0]},
                "pair 0->1 could have another circuit",
            ),
            ({"unserved_src": [0], "unserved_dst": [1], "unserved_plans": [1]}, "unserved pairs"),
        ],
    )
    def test_a_broken_promise_is_named(self, changes, words):
        with pytest.raises(PluginError, match=words):
            made_by_hand(**changes).check()

    @pytest.mark.parametrize(
        ("port_map", "words"),
        [
            ([[1, 1, -1], [1, -1, -1]], "switch 0 connects output 1 to 2 inputs"),
            ([[3, -1, -1], [1, -1, -1]], r"must name outputs 0\.\.2"),
            ([[1, -1], [1, -1]], "must have 3 columns"),
        ],
    )
    def test_a_map_that_is_no_permutation_cannot_be_made(self, port_map, words):
        with pytest.raises(ConfigError, match=words):
            made_by_hand(port_map=port_map)


def test_rows_name_the_switches():
    made = plan(traffic(3, {(0, 1): 2.0, (0, 2): 1.0}), switches=3, link_gbps=10)
    assert list(made.rows()) == [
        {"src": 0, "dst": 1, "capacity_gbps": 20.0, "circuits": 2, "kept": 0, "switches": "0;1"},
        {"src": 0, "dst": 2, "capacity_gbps": 10.0, "circuits": 1, "kept": 0, "switches": "2"},
    ]


@pytest.mark.parametrize("gpus", [3, 8, 64, 100])
def test_the_drawing_labels_outputs_up_to_64_gpus(gpus):
    from matplotlib.figure import Figure

    ring = traffic(gpus, {(i, (i + 1) % gpus): 1.0 for i in range(gpus)})
    axes = Figure().subplots()
    plan(ring, switches=2, link_gbps=1).draw(axes)
    labels = [text.get_text() for text in axes.texts]
    assert len(labels) == (2 * gpus if gpus <= 64 else 0)
    assert labels[:1] == (["1"] if gpus <= 64 else [])
    assert axes.get_ylabel() == "switch"


def test_the_example_in_the_documentation_runs():
    """Its last line promises that the same demand again leaves nothing dark."""
    text = (Path(__file__).parents[3] / "docs" / "sip-ocs.md").read_text(encoding="utf-8")
    names = {}
    exec(re.search(r"```python\n(.*?)```", text, re.DOTALL)[1], names)
    assert names["circuits"].port_map.shape == (16, 3)
    assert not names["again"].dark_us.any()


def test_what_is_no_traffic_matrix_is_refused():
    with pytest.raises(ConfigError, match=r"must be a TrafficMatrix.*got \[\[0, 1\], \[1\]\]"):
        plan([[0, 1], [1]], switches=2, link_gbps=10.0)
