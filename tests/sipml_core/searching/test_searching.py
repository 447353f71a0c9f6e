"""The search, with answers made up for every trial: who is simulated, who wins, and every ratio."""

import attrs
import pytest

from sipml_core.experiment.reading import read_experiment
from sipml_core.searching import workers

#: Steps that the fake workload needs, at every batch.
STEPS = 100.0


def test_the_best_by_the_estimate_and_pure_data_parallelism_are_simulated(found):
    """On either network mp = 2 has the least estimate; mp = 1 is simulated beside it."""
    found()
    assert {ask[1:] for ask in found.asked if ask[0] == workers.ESTIMATE} == {
        (label, mp) for label in ("slow", "fast") for mp in (1, 2, 4, 8)
    }
    assert {ask[1:] for ask in found.asked if ask[0] == workers.SIMULATION} == {
        (label, mp) for label in ("slow", "fast") for mp in (1, 2)
    }


def test_four_are_simulated_where_the_experiment_says_nothing(found, fakes):
    """The four best by the estimate; with `top = 3` mp = 8 is left out."""
    tables = {
        "title": "top", "cluster": {"gpus": 8, "bandwidth_gbps": 400}, "workload": {"name": "tiny"},
        "topology": {"name": "switch"},
    }  # fmt: skip
    assert read_experiment(tables, fakes.fake_registry()).jobs[0].search.top == 4
    assert [row.status for row in found(top=3).of("tiny", "slow")] == ["simulated"] * 3 + ["estimated"]


def asked_in_turn(found, label):
    """Return the mp of each simulation on one network, in the order in which they were asked for."""
    return [ask[2] for ask in found.asked if ask[0] == workers.SIMULATION and ask[1] == label]


@pytest.mark.parametrize(
    ("took_us", "top", "further", "in_turn", "best"),
    [
        (800.0, 1, 64, [1, 2], 2),
        (890.0, 1, 64, [1, 2, 4], 4),  # 880 is below 890; 990 of mp = 8 is not below 850
        (890.0, 1, 0, [1, 2], 2),
        (880.0, 1, 64, [1, 2], 2),  # equal is not below
        (2000.0, 1, 64, [1, 2, 4], 4),
        (2000.0, 2, 64, [1, 2, 4], 4),
    ],
)
def test_how_many_further_candidates_are_simulated(found, monkeypatch, took_us, top, further, in_turn, best):
    """Estimates, slow network: mp 2 720 us, 4 880, 1 950, 8 990; simulated: 4 850, 1 900, and 2 so long.

    Whatever beats the best simulated by estimate is simulated, until nothing does.
    """
    monkeypatch.setitem(found.simulated_us["slow"], 2, took_us)
    result = found(top=top, further=further)
    assert asked_in_turn(found, "slow") == in_turn
    assert {row.mp for row in result.of("tiny", "slow") if row.best} == {best}
    more = {4} if top == 1 and 4 in in_turn else set()
    assert {row.mp for row in result.of("tiny", "slow") if row.further} == more
    assert [row.mp for row in result.further("tiny", "slow")] == sorted(more)


@pytest.mark.parametrize(
    ("top", "further", "in_turn", "left"),
    [
        (1, 64, [1, 2, 4, 8], []),
        (1, 1, [1, 2, 4], [8]),
        (1, 2, [1, 2, 4, 8], []),
        (2, 1, [1, 2, 4, 8], []),  # two first, and mp = 1
    ],
)
def test_estimates_that_are_all_far_too_low_have_all_simulated_up_to_the_limit(
    found, monkeypatch, top, further, in_turn, left
):
    """A tenth of what candidates take: each estimate beats each simulation, and mp = 8 wins, the last."""
    for mp, time_us in dict(found.estimate_us["slow"]).items():
        monkeypatch.setitem(found.estimate_us["slow"], mp, time_us / 10)
    result = found(top=top, further=further)
    assert asked_in_turn(found, "slow") == in_turn
    assert [row.mp for row in result.doubted_by("tiny", "slow")] == left
    assert [row.mp for row in result.rows if row.best and row.topology == "slow"] == [2 if left else 8]


def test_the_winner_has_the_least_simulated_time_whatever_was_estimated(found):
    """All simulated: mp = 8 on the slow network, which the estimate put last."""
    result = found(top=4)
    assert [(case.topology, case.mp) for case in result.best] == [("slow", 8), ("fast", 2)]
    assert [(row.topology, row.mp) for row in result.rows if row.best] == [("slow", 8), ("fast", 2)]


def test_the_speed_up_is_the_time_of_the_baseline_by_the_time_of_the_case(found):
    """Winners by one simulation each: 800 us on the baseline, 320 us on the other network."""
    slow, fast = found().best
    assert (slow.topology, slow.speedup) == ("slow", 1.0)
    assert (fast.topology, fast.speedup) == ("fast", pytest.approx(2.5))
    assert (slow.workload, fast.workload) == ("tiny", "tiny")


def test_a_row_holds_estimate_simulation_and_the_error_of_the_estimate(found):
    """Estimate over simulation less 1: 720 / 800 - 1 = -10 %, 330 / 320 - 1 = 3.125 %."""
    rows = {(row.topology, row.mp): row for row in found().rows}
    slow = rows["slow", 2]
    assert attrs.asdict(slow) == {
        "workload": "tiny", "topology": "slow", "options": "", "gpus": 8, "bandwidth_gbps": 400.0,
        "mp": 2, "dp": 4, "global_batch": 16, "layout": "auto", "placer": "algorithm1", "status": "simulated",
        "best": True, "estimate_us": 720.0, "iteration_us": 800.0, "one_round_us": None,
        "error": pytest.approx(-0.1),
        "steps_to_accuracy": STEPS, "estimate_s": pytest.approx(0.072),
        "time_to_accuracy_s": pytest.approx(0.08), "goal": "accuracy", "time_to_goal_s": pytest.approx(0.08),
        "all_reduce": "two-tier", "exchange": "chain", "memory_bytes": 2e9, "extrapolated": False,
        "tight_memory": False, "reason": "", "pp": 1, "micro_batch": 4, "schedule": "", "zero": 0,
        "recompute": "none", "bubble": 0.0, "further": False,
    }  # fmt: skip
    assert rows["fast", 2].error == pytest.approx(0.03125)
    other = rows["slow", 4]
    assert other.estimate_s == pytest.approx(0.088)
    assert (other.iteration_us, other.error, other.time_to_accuracy_s) == (None, None, None)
    assert (other.all_reduce, other.exchange, other.best) == ("flat", "direct", False)


@pytest.mark.parametrize(("used", "tight"), [(0.949, set()), (0.951, {8})])
def test_memory_is_tight_from_95_percent_of_the_device(found, monkeypatch, fakes, used, tight):
    """Answers say 1, 2, 4 and 8 GB; 8 GB are the part `used` of the device."""
    monkeypatch.setattr(fakes.TinyGpu, "memory_bytes", 8e9 / used)
    assert {row.mp for row in found().rows if row.tight_memory} == tight
