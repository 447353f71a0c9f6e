"""What circuits are planned for: weights of gating pairs, and plans that are kept."""

import numpy as np
import pytest

from sipml_core.model.circuits import CircuitControl
from sipml_core.model.fabric import Fabric
from sipml_core.model.network import Network
from sipml_core.model.taskbuilder import TaskBuilder
from sipml_core.scheduling.demandrules import BYTES, GATING, RULES_ONCE, RULES_REPLANNED, DemandRule
from sipml_core.scheduling.driver import ScheduledCircuits, crowded, fewest_circuits


@pytest.fixture
def driver(fakes):
    def made(circuits_per_gpu=4, total=(8.0, 4.0), **options):
        """GPU 0 sends to GPUs 1 and 2; a port carries 100 Gbps, 1 250 000 bytes in an interval of 100 us."""
        control = CircuitControl(
            gpus=3,
            circuit_gbps=100.0 / circuits_per_gpu,
            circuits_per_gpu=circuits_per_gpu,
            interval_us=100.0,
        )
        builder = TaskBuilder(3)
        builder.transfers([0, 0], [1, 2], total, 0)
        network = Network.of(Fabric.with_ports(circuits=control, port_gbps=100.0), builder.build())
        scheduler = fakes.Turns()
        circuits = ScheduledCircuits(
            control=control,
            scheduler=scheduler,
            estimator=lambda *, now_us, interval_us, sent_bytes, backlog_bytes: backlog_bytes,
            network=network,
            total_bytes=np.array(total),
            **options,
        )
        return circuits, scheduler

    return made


def ask(made, *backlogs):
    return [made.decide(100.0 * (k + 1), np.zeros(2), np.array(b, float)) for k, b in enumerate(backlogs)]


GATES = np.array([0 * 3 + 2])  # 0 -> 2


def test_by_bytes_demands_are_as_they_are(driver):
    made, scheduler = driver(rule=BYTES, gates=GATES)
    ask(made, [10, 1])
    assert scheduler.asked == [{(0, 1): 8.0, (0, 2): 4.0}, {(0, 1): 10.0, (0, 2): 1.0}]


def test_weights_of_one_change_no_bit():
    """A rule that multiplies by 1 is no other demand, whatever its digits."""
    demand = np.random.default_rng(1).lognormal(0, 9, 100)
    rule = DemandRule(summary="by 1")
    assert rule.weighted(demand, np.ones(100, bool), 1e9).tobytes() == demand.tobytes()


@pytest.mark.parametrize(
    ("rule", "expected"),
    [(GATING, 1000.0), (RULES_REPLANNED[1], 12_500.0), (RULES_ONCE[1], 300.0), (RULES_ONCE[2], 64.0)],
    ids=["as the largest", "1 % of 1.25 MB", "0.3 of the largest", "64 times its bytes"],
)
def test_a_gating_pair_counts_for_more(driver, rule, expected):
    made, scheduler = driver(rule=rule, gates=GATES)
    ask(made, [1000, 1])
    assert scheduler.asked[1] == {(0, 1): 1000.0, (0, 2): expected}


def test_nothing_is_planned_where_nothing_is_demanded(driver):
    """A standing demand is none of its own: idle circuits stay as they are."""
    made, scheduler = driver(rule=GATING, gates=GATES)
    assert ask(made, [0, 0]) == [None]
    assert len(scheduler.asked) == 1


@pytest.mark.parametrize(("circuits", "fewest"), [(1, 0), (2, 1), (3, 1), (4, 2)])
def test_it_is_crowded_where_some_pair_gets_fewer_than_two_circuits(driver, circuits, fewest):
    """Two pairs share the circuits of GPU 0: of 3, one pair gets 2 and the other 1."""
    made, scheduler = driver(circuits)
    assert fewest_circuits(scheduler, made.control, made.network) == fewest
    assert crowded(scheduler, made.control, made.network) == (fewest < 2)


class TestPlansThatAreKept:
    """`replan_above` = 0.1 of the demand; the first plan is for 8 : 4."""

    def test_the_scheduler_is_asked_only_when_enough_has_moved(self, driver):
        """60 : 30 are the same ratios. 70 : 30 moves 0.7 - 2/3 = 0.033 of the demand, 80 : 20 0.133. After
        that plan 75 : 25 is near."""
        made, scheduler = driver(replan_above=0.1)
        kept = [settings is None for settings in ask(made, [60, 30], [70, 30], [80, 20], [75, 25])]
        assert kept == [True, True, False, True]
        assert (made.plans, made.kept, len(scheduler.asked)) == (2, 3, 2)

    def test_a_pair_without_a_circuit_is_never_left_to_wait(self, driver):
        """One circuit is not enough for two pairs: 0 -> 2 has none, so that every instant asks again."""
        made, _ = driver(1, replan_above=1.0)
        ask(made, [8, 4], [8, 4])
        assert (made.plans, made.kept) == (3, 0)

    def test_without_it_every_instant_asks(self, driver):
        made, _ = driver()
        ask(made, [8, 4], [8, 4])
        assert (made.plans, made.kept) == (3, 0)
