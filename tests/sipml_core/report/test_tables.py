"""The tables of a run: each column shows the field it says."""

import pytest

from sipml_core.model.results import CaseResult, Result
from sipml_core.report.tables import footnotes, result_tables


def result(*cases, baseline="base"):
    return Result(
        title="by hand", seed=5, version="1", baseline=baseline, experiment={}, cases=cases, sources={}
    )


#: What `fakes.case_result` prints.
CELLS = {
    "interconnect": "net",
    "mp x dp": "3 x 8 (pp 6)",
    "iteration": "1.111 ms",
    "bound": "777 us",
    "compute": "222 us",
    "largest": "288 us",
    "exposed": "333 us",
    "dark": "44 us",
    "idle": "512 us",
    "sent / GPU": "5.5 MB",
    "to accuracy": "1.65 min",
    "speed-up": "2.50x",
}
NARROW = ["interconnect", "mp x dp", "iteration", "exposed", "to accuracy", "speed-up"]


def titled(table):
    return table.title.plain


def test_every_column_shows_the_field_it_says(fakes, columns):
    (table,) = result_tables(result(fakes.case_result()))
    assert columns(table) == {heading: [cell] for heading, cell in CELLS.items()}
    assert titled(table) == "model: 24 GPUs, global batch 96"
    assert not table.caption


def test_a_narrow_table_has_the_main_columns_with_the_same_cells(fakes, columns):
    (table,) = result_tables(result(fakes.case_result()), width=80)
    assert columns(table) == {heading: [CELLS[heading]] for heading in NARROW}
    assert "summary.csv" in table.caption.plain


def test_each_workload_has_a_table_and_each_interconnect_a_row(fakes, columns):
    """In the order of the experiment; the baseline is called so instead of 1.00x."""
    cases = [
        fakes.case_result(workload=workload, topology=topology)
        for workload in ("b", "a")
        for topology in ("base", "net")
    ]
    first, second = result_tables(result(*cases))
    assert (titled(first).split(":")[0], titled(second).split(":")[0]) == ("b", "a")
    assert columns(first)["interconnect"] == ["base", "net"]
    assert columns(first)["speed-up"] == ["baseline", "2.50x"]


def test_a_batch_outside_the_data_is_marked_and_the_mark_explained(fakes, columns):
    cases = (fakes.case_result(extrapolated=True, notes=()),)
    (table,) = result_tables(result(*cases))
    assert columns(table)["to accuracy"] == ["1.65 min*"]
    assert footnotes(result(*cases)) == [
        "* the batch lies outside the measured convergence data: extrapolated"
    ]


def test_notes_name_their_case_and_are_said_once(fakes):
    case = fakes.case_result()
    expected = ["model on net: first note", "model on net: second note"]
    assert footnotes(result(case, case)) == expected


@pytest.mark.parametrize(("speedup", "shown"), [(0.5, "0.50x"), (1.0, "1.00x"), (12.345, "12.35x")])
def test_a_speedup_below_one_is_slower_than_the_baseline(fakes, columns, speedup, shown):
    (table,) = result_tables(result(fakes.case_result(speedup=speedup)))
    assert columns(table)["speed-up"] == [shown]


def test_time_for_tokens_stands_where_accuracy_was_not_measured(fakes, columns):
    """3e5 s are 83.33 h."""
    case = fakes.case_result(
        goal="300 billion tokens", steps_to_accuracy=None, time_to_accuracy_s=None, time_to_goal_s=3e5
    )
    (table,) = result_tables(result(case))
    assert columns(table)["to 300 billion tokens"] == ["83.33 h"]
    assert columns(table)["tokens/s"] == ["5 500 000"]
    assert "to accuracy" not in columns(table)
    assert footnotes(result(case))[-1] == (
        "model: no convergence curve was measured for this model; time for 300 billion tokens instead"
    )


@pytest.mark.parametrize("width", [30, 60, 80, 150])
def test_a_case_that_did_not_run_is_a_row_with_its_reason(fakes, columns, width):
    """Whatever the width: no number, and the reason in full below."""
    unfit = CaseResult(
        workload="model", topology="tight [net]", status="infeasible", reason="288 GB, has 32 [GB]",
        gpus=24, bandwidth_gbps=700.0,
    )  # fmt: skip
    (table,) = result_tables(result(fakes.case_result(), unfit), width=width)
    assert columns(table)["interconnect"] == ["net", "tight [net]"]
    assert columns(table)["iteration"] == ["1.111 ms", "infeasible"]
    assert columns(table)["to accuracy"][1] == "-"
    assert "tight [net]: infeasible: 288 GB, has 32 [GB]" in table.caption.plain
