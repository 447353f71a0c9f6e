"""The tables, files and figures of a study: each column shows the field it says."""

import attrs
import pytest

from sipml_core.report.reproduction import (
    draw,
    finding_tables,
    reproduction_footnotes,
    verdict_table,
    write_finding,
)
from sipml_core.reproduce.numbers import Finding, Verdict
from sipml_core.reproduce.study import Study
from sipml_core.sweeping import QUANTITIES, FigureTable, Number

#: `fakes.number`: 7200 s; 4000 us; 96 samples in 4000 us; degrees 3 x 8; and its batch is extrapolated.
SHOWN = {
    "time_to_accuracy_h": ("time to accuracy [h]", "2*"),
    "iteration_ms": ("iteration [ms]", "4*"),
    "throughput_per_s": ("samples per second", "24 000*"),
    "mp": ("model-parallel degree", "3*"),
    "dp": ("data-parallel degree", "8*"),
}


def finding(*numbers, verdicts=(), y=QUANTITIES):
    study = Study(title="What if?", do="search", figure=FigureTable(x_label="bandwidth [Gbps]", y=y))
    return Finding(name="small", study=study, numbers=numbers, verdicts=tuple(verdicts), searches=())


def test_each_quantity_has_a_table_with_its_own_numbers(fakes, columns, printed):
    tables = finding_tables(finding(fakes.number()))
    assert {printed(table.title): columns(table) for table in tables} == {
        f"small, model: {axis}": {"bandwidth [Gbps]": ["Elect-Flat"], "100": [cell]}
        for axis, cell in SHOWN.values()
    }


def test_a_number_stands_in_the_row_of_its_series_and_the_column_of_its_point(fakes, columns):
    numbers = [
        fakes.number(series=series, x=x, mp=mp, extrapolated=False)
        for mp, (series, x) in enumerate([("OCS", 200.0), ("OCS", 100.0), ("Elect-Flat", 200.0)], start=1)
    ]
    (table,) = finding_tables(finding(*numbers, y=("mp",)))
    assert list(columns(table).values()) == [["OCS", "Elect-Flat"], ["2", ""], ["1", "3"]]
    assert list(columns(table))[1:] == ["100", "200"]


def test_named_points_are_rows(fakes, columns):
    numbers = [
        fakes.number(series=series, x=x, label=label, mp=mp, extrapolated=False)
        for series, x, label, mp in (("OCS", 2.0, "b", 5), ("OCS", 1.0, "a", 6), ("Elect-Flat", 2.0, "b", 7))
    ]
    (table,) = finding_tables(finding(*numbers, y=("mp",)))
    assert list(columns(table).values()) == [["a", "b"], ["6", "5"], ["", "7"]]
    assert list(columns(table))[1:] == ["OCS", "Elect-Flat"]


@pytest.mark.parametrize(
    ("changes", "cell"),
    [
        ({"extrapolated": False}, "3"),
        ({"tight_memory": True}, "3*!"),
        ({"tight_memory": True, "extrapolated": False}, "3!"),
        ({"mp": None}, "-"),
    ],
)
def test_marks_and_gaps(fakes, columns, changes, cell):
    (table,) = finding_tables(finding(fakes.number(**changes), y=("mp",)))
    assert columns(table)["100"] == [cell]


VERDICT = Verdict(
    claim="A beats B", paper="1.3x to 9.1x", smallest=2.0, largest=4.0, points=5, unjudged=6,
    verdict="holds", by_workload={"big": (2.0, 3.0), "small": (2.5, 4.0)}, extrapolated=True,
)  # fmt: skip


def test_every_column_of_the_verdicts_shows_the_field_it_says(columns):
    assert columns(verdict_table(finding(verdicts=[VERDICT]))) == {
        "claim": ["A beats B"],
        "paper": ["1.3x to 9.1x"],
        "ours": ["2.00x to 4.00x*"],
        "each workload": ["big 2.00x to 3.00x\nsmall 2.50x to 4.00x"],
        "verdict": ["holds\n6 points without a time"],
    }
    nothing = attrs.evolve(
        VERDICT, smallest=None, largest=None, by_workload={}, extrapolated=False, unjudged=0
    )
    assert columns(verdict_table(finding(verdicts=[nothing])))["ours"] == ["-"]


def test_a_study_with_claims_shows_its_verdicts_alone(fakes, columns):
    (table,) = finding_tables(finding(fakes.number(), verdicts=[VERDICT]))
    assert "verdict" in columns(table)


def test_the_csv_of_a_study_holds_each_field_in_its_column(fakes, tmp_path, records):
    missing = fakes.number(mp=None, iteration_us=None, reason="no room", extrapolated=False)
    (path,) = write_finding(finding(fakes.number(), missing), tmp_path, picture=False)
    assert path == tmp_path / "small.csv"
    first, second = records(path)
    assert list(first) == [field.name for field in attrs.fields(Number)]
    assert first == {
        "workload": "model", "series": "Elect-Flat", "x": "100.0", "label": "", "gpus": "24", "mp": "3",
        "dp": "8", "global_batch": "96", "iteration_us": "4000.0", "steps_to_accuracy": "1800000.0",
        "time_to_accuracy_s": "7200.0", "estimate_error": "-0.25", "extrapolated": "true",
        "tight_memory": "false", "reason": "",
    }  # fmt: skip
    changed = {"mp": "", "iteration_us": "", "reason": "no room", "extrapolated": "false"}
    assert second == {**first, **changed}


def test_the_csv_of_the_claims_holds_each_field_in_its_column(tmp_path, records):
    (path,) = write_finding(finding(verdicts=[VERDICT]), tmp_path, picture=True)
    assert records(path) == [{
        "claim": "A beats B", "paper": "1.3x to 9.1x", "smallest": "2.0", "largest": "4.0", "points": "5",
        "unjudged": "6", "verdict": "holds", "by_workload": '{"big": [2.0, 3.0], "small": [2.5, 4.0]}',
        "extrapolated": "true",
    }]  # fmt: skip


def test_the_figure_has_a_row_for_each_quantity_and_a_column_for_each_workload(fakes):
    """With the point at its place, under the label of its quantity."""
    pytest.importorskip("matplotlib")
    numbers = [fakes.number(), fakes.number(workload="other", mp=4)]
    panels = draw(finding(*numbers)).axes
    assert [panels[2 * row].get_ylabel() for row in range(5)] == [axis for axis, _ in SHOWN.values()]
    assert [panel.get_title() for panel in panels[:2]] == ["model", "other"]
    assert {panel.get_xlabel() for panel in panels[-2:]} == {"bandwidth [Gbps]"}
    points = [panel.get_lines()[0].get_xydata().tolist() for panel in panels]
    left = [[[100.0, value]] for value in (2.0, 4.0, 24_000.0, 3.0, 8.0)]
    assert points[0::2] == left
    assert points[1::2] == [*left[:3], [[100.0, 4.0]], left[4]]


def test_footnotes_explain_every_mark_and_each_gap_once(fakes):
    number = fakes.number(tight_memory=True, reason="no room", x=1.0)
    assert reproduction_footnotes([finding(number, attrs.evolve(number, x=2.0))]) == [
        "* the batch lies outside the measured convergence data: extrapolated",
        "! needs more than 95 % of the device memory",
        "model, Elect-Flat: no room",
    ]
    assert reproduction_footnotes([finding(fakes.number(extrapolated=False))]) == []
