"""What is left out where jobs share links, against a reference of which nothing is."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[3]
_spec = importlib.util.spec_from_file_location("sharing_errors", ROOT / "benchmarks" / "sharing_errors.py")
sharing = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sharing)


def result(makespan_us, slowdown, *times_us):
    rows = [SimpleNamespace(job=str(k), iteration_us=us) for k, us in enumerate(times_us)]
    summary = SimpleNamespace(makespan_us=makespan_us, slowdown=slowdown)
    return SimpleNamespace(rows=rows, summaries=[summary])


def test_errors_are_relative_to_the_reference():
    """One job takes 1 % longer and one 2 % less; one did not run, and counts nowhere."""
    found = sharing.errors(result(11.0, 3.0, 101.0, 98.0, None), result(10.0, 2.0, 100.0, 100.0, None))
    expected = {"mean": 0.015, "most": 0.02, "bias": -0.005, "slowdown": 0.5, "makespan": 0.1}
    assert found == pytest.approx(expected)


@pytest.mark.interconnects
def test_little_is_lost_where_few_jobs_meet(registry):
    """Up to eight jobs run as many iterations as any; what else is left out moves a job by less than a tenth,
    and all of them by less than a hundredth."""
    exact = sharing.shared(registry, "first-fit", ())
    fewer = sharing.shared(registry, "first-fit", ("iterations of many",))
    assert [row.iteration_us for row in fewer.rows] == [row.iteration_us for row in exact.rows]
    usual = sharing.shared(registry, "first-fit", sharing.LEFT_OUT)
    assert usual.summaries[0].simulated_together < exact.summaries[0].simulated_together
    assert exact.summaries[0].slowdown > 1.5
    found = sharing.errors(usual, exact)
    assert found["most"] < 0.1
    assert found["mean"] < 0.01
