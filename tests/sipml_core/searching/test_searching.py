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
        "recompute": "none", "bubble": 0.0,
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
