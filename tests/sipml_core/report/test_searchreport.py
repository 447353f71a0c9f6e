"""The tables and files of a search: each column shows the field it says."""

import io
import json

import attrs
import pytest

from sipml_core.report.limiting import bound_by
from sipml_core.report.searchreport import search_footnotes, search_tables, winners_tables, write_search
from sipml_core.searching.searchresult import SearchResult, SearchRow


def result(rows, best=(), baseline="base"):
    return SearchResult(
        title="by hand", seed=5, version="1.2", baseline=baseline, experiment={"title": "by hand"},
        rows=tuple(rows), best=tuple(best), sources={"model": "a paper"},
    )  # fmt: skip


#: What `fakes.search_row` prints, and how it looks where it was not simulated, or cannot be.
SIMULATED = {
    "mp x dp": "3 x 8 (pp 5)",
    "batch": "96",
    "layout": "tensor",
    "placer": "aligned",
    "memory": "8.8 GB",
    "estimate": "1.2 ms",
    "simulated": "1 ms",
    "error": "+20.0%",
    "to accuracy": "13 s*",
}
ESTIMATED = {**SIMULATED, "simulated": "", "error": "", "to accuracy": "~15.6 s*"}
INFEASIBLE = {**SIMULATED, "estimate": "infeasible", "simulated": "no room", "error": "", "to accuracy": ""}
NOT_SIMULATED = {"status": "estimated", "best": False} | dict.fromkeys(
    ("iteration_us", "one_round_us", "error", "time_to_accuracy_s")
)


@pytest.mark.parametrize(
    ("changes", "cells"),
    [
        ({}, SIMULATED),
        (NOT_SIMULATED, ESTIMATED),
        ({**NOT_SIMULATED, "status": "infeasible", "reason": "no room"}, INFEASIBLE),
        ({"tight_memory": True, "extrapolated": False}, {"memory": "8.8 GB!", "to accuracy": "13 s"}),
        ({"error": -0.125}, {"error": "-12.5%"}),
    ],
    ids=["simulated", "estimated", "infeasible", "marks", "too low"],
)
def test_every_column_shows_the_field_it_says(fakes, columns, changes, cells):
    (table,) = search_tables(result([fakes.search_row(**changes)]))
    assert columns(table) == {heading: [cell] for heading, cell in {**SIMULATED, **cells}.items()}


def test_the_title_counts_what_became_of_the_candidates(fakes):
    rows = [fakes.search_row(), fakes.search_row(), fakes.search_row(**NOT_SIMULATED)]
    (table,) = search_tables(result(rows))
    assert table.title.plain == "model on net: 24 GPUs, 2 simulated, 1 estimated"


def test_rows_stand_by_simulated_time_then_by_estimate_and_the_infeasible_last(fakes, columns):
    """global_batch names the rows; the first table entries are what a reader takes."""
    rows = [
        fakes.search_row(global_batch=5, status="infeasible", reason="no", time_to_accuracy_s=None),
        fakes.search_row(**NOT_SIMULATED | {"global_batch": 4, "estimate_s": 2.0}),
        fakes.search_row(**NOT_SIMULATED | {"global_batch": 3, "estimate_s": 1.0}),
        fakes.search_row(global_batch=2, time_to_accuracy_s=8.0),
        fakes.search_row(global_batch=1, time_to_accuracy_s=7.0),
    ]
    (table,) = search_tables(result(rows))
    assert columns(table)["batch"] == ["1", "2", "3", "4", "5"]


def test_eight_rows_are_shown_and_the_best_of_pure_data_parallelism(fakes, columns):
    rows = [fakes.search_row(global_batch=n, time_to_accuracy_s=float(n)) for n in range(1, 13)]
    rows[10] = attrs.evolve(rows[10], mp=1, pp=1)
    rows[11] = attrs.evolve(rows[11], mp=1, pp=1)
    (table,) = search_tables(result(rows))
    assert columns(table)["batch"] == [*map(str, range(1, 9)), "11"]
    assert table.caption.plain == "12 candidates in all; every one is in search.csv"
    (whole,) = search_tables(result(rows), shown=None)
    assert whole.row_count == 12
    assert not whole.caption


def test_plans_are_shown_where_they_differ(fakes, columns):
    """Two plans of the same degrees: what tells them apart; a candidate that was not needed says so."""
    rows = [
        fakes.search_row(),
        fakes.search_row(pp=1, schedule="", zero=0, recompute="none", time_to_accuracy_s=14.0),
        fakes.search_row(**NOT_SIMULATED | {"status": "left out", "reason": "another fits"}),
    ]
    (table,) = search_tables(result(rows))
    assert columns(table)["plan"] == [
        "in order, micro-batch 4, zero 2, recompute selective", "micro-batch 4",
        "in order, micro-batch 4, zero 2, recompute selective",
    ]  # fmt: skip
    assert columns(table)["estimate"] == ["1.2 ms", "1.2 ms", "left out"]
    found = result([attrs.evolve(rows[0], best=False), rows[1]], [fakes.case_result(mp=3, dp=8)])
    (winners,) = winners_tables(found)
    assert columns(winners)["plan"] == ["micro-batch 4"]


def test_where_room_is_short_what_all_rows_share_is_said_below_and_plans_stay(fakes, columns):
    """In 80 columns rows are still told apart."""
    plan = {"mp": 1, "dp": 8, "pp": 1, "schedule": "", "recompute": "none"}
    rows = [fakes.search_row(**plan, zero=zero) for zero in (0, 1)]
    (table,) = search_tables(result(rows), width=80)
    assert columns(table)["plan"] == ["micro-batch 4", "micro-batch 4, zero 1"]
    assert not {"placer", "batch"} & set(columns(table))
    assert table.caption.plain == "all rows: placer aligned, layout tensor, batch 96"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "pipeline 46%, communication 30%"),
        ({"host_wait_us": 400.0}, "host 36%, communication 30%"),
        ({"pp": 1, "exposed_us": 10.0, "compute_us": 30.0}, "idle 46%"),
        ({"dark_us": 600.0, "idle_us": 0.0}, "dark circuits 54%, communication 30%"),
        ({"compute_us": 1100.0, "exposed_us": 11.0, "idle_us": 0.0, "dark_us": 0.0}, "compute 99%"),
        ({"status": "infeasible", "iteration_us": None}, ""),
    ],
    ids=["pipeline", "host", "idle", "dark", "compute", "did not run"],
)
def test_what_bounds_an_iteration_is_its_largest_part(fakes, changes, words):
    """Parts of 1111 us; the second is named from 5 % on."""
    assert bound_by(fakes.case_result(**changes)) == words


def test_the_winner_of_a_table_is_bold(fakes):
    rows = [fakes.search_row(best=True), fakes.search_row(best=False, time_to_accuracy_s=14.0)]
    (table,) = search_tables(result(rows))
    assert [row.style for row in table.rows] == ["bold", None]


def winners(fakes, **changes):
    """A winner (99 s), and two candidates of pure data parallelism, of 400 s and of 300 s."""
    rows = [fakes.search_row(mp=1, pp=1, time_to_accuracy_s=seconds) for seconds in (400.0, 300.0)]
    rows += [fakes.search_row(time_to_accuracy_s=99.0)]
    return result(rows, [fakes.case_result(**changes)])


WINNER = {
    "workload": "model",
    "interconnect": "net",
    "mp x dp": "3 x 8 (pp 6)",
    "batch": "96",
    "iteration": "1.111 ms",
    "to accuracy": "1.65 min",
    "speed-up": "2.50x",
    "pure DP": "5 min",
    "bound by": "pipeline 46%, communication 30%",
}


@pytest.mark.parametrize(
    ("changes", "cells"),
    [
        ({}, {}),
        ({"topology": "base"}, {"interconnect": "base", "speed-up": "baseline", "pure DP": "infeasible"}),
        ({"speedup": None}, {"speed-up": "-"}),
        ({"extrapolated": True}, {"to accuracy": "1.65 min*"}),
    ],
    ids=["plain", "baseline", "the baseline cannot run", "extrapolated"],
)
def test_every_column_of_the_winners_shows_the_field_it_says(fakes, columns, changes, cells):
    (table,) = winners_tables(winners(fakes, **changes))
    assert columns(table) == {heading: [cell] for heading, cell in {**WINNER, **cells}.items()}


#: search.csv of `fakes.search_row`, column by column.
RECORD = {
    "workload": "model", "topology": "net", "options": "reach = 7", "gpus": "24", "bandwidth_gbps": "700.0",
    "mp": "3", "dp": "8", "global_batch": "96", "layout": "tensor", "placer": "aligned",
    "status": "simulated", "best": "true", "estimate_us": "1200.0", "iteration_us": "1000.0",
    "one_round_us": "1150.0", "error": "0.2",
    "goal": "accuracy", "steps_to_accuracy": "13000.0",
    "estimate_s": "15.6", "time_to_accuracy_s": "13.0", "time_to_goal_s": "13.0",
    "all_reduce": "two-tier", "exchange": "chain",
    "memory_bytes": "8800000000.0", "extrapolated": "true", "tight_memory": "false", "reason": "",
    "pp": "5", "micro_batch": "4", "schedule": "in order", "zero": "2", "recompute": "selective",
    "bubble": "0.375", "further": "false",
}  # fmt: skip


def test_search_csv_holds_each_field_in_its_column(fakes, tmp_path, records):
    """And nothing where there is no number."""
    write_search(result([fakes.search_row(), fakes.search_row(**NOT_SIMULATED)]), tmp_path)
    first, second = records(tmp_path / "search.csv")
    assert first == RECORD
    assert list(first) == [field.name for field in attrs.fields(SearchRow)]
    assert {key for key in second if second[key] != first[key]} == {*NOT_SIMULATED, "time_to_goal_s"}
    assert [second[key] for key in ("iteration_us", "error", "time_to_accuracy_s")] == ["", "", ""]


def test_search_json_holds_each_field_under_its_key(fakes, tmp_path):
    """Rows, and winners in full; a speed-up over a baseline that cannot run is null."""
    found = result([fakes.search_row()], [fakes.case_result(speedup=None)])
    write_search(found, tmp_path)
    stored = json.loads((tmp_path / "search.json").read_text())
    assert stored.pop("rows") == [attrs.asdict(fakes.search_row())]
    (case,) = stored.pop("best")
    assert case == attrs.asdict(fakes.case_result(speedup=None)) | {"notes": ["first note", "second note"]}
    assert stored == {
        "title": "by hand", "seed": 5, "version": "1.2", "baseline": "base",
        "experiment": {"title": "by hand"}, "sources": {"model": "a paper"}, "versions": {}, "files": {},
    }  # fmt: skip


def test_footnotes_explain_every_mark_and_who_cannot_run(fakes):
    row = fakes.search_row(**NOT_SIMULATED, extrapolated=True, tight_memory=True)
    refused = attrs.evolve(row, topology="small", status="infeasible", reason="no room", estimate_s=None)
    lines = search_footnotes(result([row, refused], [fakes.case_result()]))
    assert lines == [
        "model on small: no candidate can run; the last one: no room",
        "* the batch lies outside the measured convergence data: extrapolated",
        "! needs more than 95 % of the device memory",
        "~ estimated only",
    ]
    plain = fakes.search_row(extrapolated=False, one_round_us=None)
    assert search_footnotes(result([plain], [fakes.case_result()])) == []


def test_what_broke_says_more_than_what_cannot_be(fakes):
    row = fakes.search_row(**NOT_SIMULATED)
    broken = attrs.evolve(
        row, status="infeasible", reason="failed: scheduler 'mine': no plan", estimate_s=None
    )
    refused = attrs.evolve(broken, reason="mp must divide 8 heads")
    lines = search_footnotes(result([broken, refused], []))
    assert lines[0] == "model on net: no candidate can run; the last one: failed: scheduler 'mine': no plan"


def test_the_gain_of_rounds_is_that_of_the_best_candidates(fakes):
    """In one round the first would win, with 12 s; in turn the second does, with 9 s of 18 s: 25 % less."""
    first = fakes.search_row(best=False, iteration_us=1000.0, one_round_us=1000.0, time_to_accuracy_s=12.0)
    second = fakes.search_row(iteration_us=500.0, one_round_us=1000.0, time_to_accuracy_s=9.0)
    other = fakes.search_row(topology="switch", one_round_us=None)
    winners = [fakes.case_result(), fakes.case_result(topology="switch")]
    found = result([first, second, other], winners)
    assert found.gain_of_rounds("model", "net") == 0.25
    assert found.gain_of_rounds("model", "switch") is None
    (line,) = [line for line in search_footnotes(found) if "in turn" in line]
    assert line == "layout and circuits in turn, against one pass: model on net 25.0% less"


def test_candidates_whose_estimate_beats_the_winner_are_counted(fakes):
    """The winner takes 13 s: 12.9 s by estimate may be faster, 13.1 s is not; no winner, no doubt."""
    won = fakes.search_row(extrapolated=False, one_round_us=None)
    beaten = attrs.evolve(fakes.search_row(**NOT_SIMULATED), extrapolated=False)
    rows = [attrs.evolve(beaten, estimate_s=seconds) for seconds in (12.9, 12.0, 13.1)]
    found = result([won, *rows, attrs.evolve(rows[0], topology="switch")], [fakes.case_result()])
    assert found.doubted_by("model", "net") == rows[:2]
    assert found.doubted_by("model", "switch") == []
    (line,) = [
        line for line in search_footnotes(result([won, *rows], [fakes.case_result()])) if "beat" in line
    ]
    assert line.startswith("model on net: by estimate 2 more beat the winner")
    assert line.endswith("search.further = 2 simulates them")


def test_what_was_simulated_for_its_estimate_is_counted(fakes):
    """Three beyond the best by estimate, one of which could not run; one more has an estimate below 13 s.

    Then `further` of four is what it takes to simulate that as well.
    """
    won = fakes.search_row(extrapolated=False, one_round_us=None)
    more = [attrs.evolve(won, best=False, further=True, time_to_goal_s=14.0)] * 2
    refused = attrs.evolve(more[0], status="infeasible", reason="no room", time_to_goal_s=None)
    left = attrs.evolve(fakes.search_row(**NOT_SIMULATED), extrapolated=False, estimate_s=12.9)
    found = result([won, *more, refused, left], [fakes.case_result()])
    assert found.further("model", "net") == [*more, refused]
    assert found.further("model", "switch") == []
    beyond, beat, _ = search_footnotes(found)
    assert beyond.startswith("model on net: beyond the best by estimate 2 more simulated")
    assert beat.endswith("search.further = 4 simulates them")


@pytest.mark.parametrize("width", [80, 100, 150])
def test_the_answer_is_never_cut(fakes, columns, width):
    """Long names and numbers, in 80 columns: what decides stands in full, whatever else is left out."""
    from rich.console import Console

    names = {"workload": "megatron-18b", "topology": "sip-ring, reach 16"}
    best = fakes.case_result(**names, mp=1024, dp=1024, global_batch=1048576, time_to_goal_s=154.1)
    row = fakes.search_row(**names, mp=1024, dp=1024, global_batch=1048576)
    found = result([row], [best])
    console = Console(width=width, record=True, file=io.StringIO())
    for table in (*winners_tables(found, width), *search_tables(found, width)):
        console.print(table)
    text = console.export_text()
    assert "\u2026" not in text
    for answer in ("sip-ring, reach 16", "1024 x 1024", "1048576", "2.568 min", "13 s"):
        assert answer in text


def test_a_model_without_a_curve_is_searched_for_the_least_time_of_its_tokens(fakes, columns):
    tokens = {"goal": "300 billion tokens", "time_to_accuracy_s": None, "time_to_goal_s": 3e5}
    found = result([fakes.search_row(**tokens)], [fakes.case_result(**tokens)])
    (table,) = winners_tables(found)
    assert table.title.plain == "least time for 300 billion tokens"
    assert columns(table)["to 300 billion tokens"] == ["83.33 h"]
