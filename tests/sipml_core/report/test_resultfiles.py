"""The files of a run: each column and key holds the field it is named for."""

import hashlib
import json
import tomllib

import attrs
import pytest

from sipml_core.errors import ConfigError
from sipml_core.model.results import HOST, LANGUAGE, ROUNDS, CaseResult, Result
from sipml_core.report.resultfiles import prepare_folder, write_atomically, write_result

#: summary.csv of `fakes.case_result`, column by column.
SUMMARY = {
    "workload": "model", "topology": "net", "options": "reach = 7",
    "status": "ok", "reason": "", "gpus": "24", "bandwidth_gbps": "700.0", "mp": "3", "dp": "8",
    "global_batch": "96", "scheduler": "planner", "all_reduce": "two-tier", "exchange": "chain",
    "iteration_us": "1111.0", "compute_us": "222.0", "compute_max_us": "288.0",
    "exposed_us": "333.0", "dark_us": "44.0", "dark_capacity_us": "51.0",
    "idle_us": "512.0", "lower_bound_us": "777.0", "network_bytes": "132000000.0",
    "gradient_bytes": "66000000.0", "memory_bytes": "8800000000.0", "decisions": "17",
    "samples_per_s": "86400.0", "tokens_per_s": "5500000.0", "goal": "accuracy",
    "steps_to_accuracy": "13000.0", "time_to_accuracy_s": "99.0", "time_to_goal_s": "99.0",
    "extrapolated": "false", "speedup": "2.5",
    "notes": "first note; second note",
    "pp": "6", "micro_batch": "9", "schedule": "in order", "zero": "2",
    "bubble": "0.375",
}  # fmt: skip


@pytest.fixture
def result(fakes):
    return Result(
        title="by hand", seed=5, version="1.2", baseline="base", experiment={"title": "by hand", "seed": 5},
        cases=(fakes.case_result(),), sources={"model": "a paper"}, versions={"numpy": "2.1"},
    )  # fmt: skip


def test_summary_csv_holds_each_field_in_its_column(result, tmp_path, records):
    write_result(result, tmp_path)
    assert records(tmp_path / "summary.csv") == [SUMMARY]
    every = attrs.fields(CaseResult)
    of_some = {LANGUAGE, HOST, ROUNDS}
    assert list(SUMMARY) == [field.name for field in every if not of_some & field.metadata.keys()]


@pytest.mark.parametrize("column", ["host_wait_us", "one_round_us"])
def test_what_only_some_cases_have_is_there_where_a_row_has_it(fakes, result, tmp_path, records, column):
    """The wait for the host, and the first round where layout and circuits were chosen in turn."""
    both = attrs.evolve(result, cases=(fakes.case_result(), fakes.case_result(**{column: 1.5})))
    write_result(both, tmp_path)
    assert [row[column] for row in records(tmp_path / "summary.csv")] == ["", "1.5"]
    cases = json.loads((tmp_path / "result.json").read_text())["cases"]
    assert [column in case for case in cases] == [False, True]


def test_columns_of_language_models_are_there_where_a_row_has_one(fakes, result, tmp_path, records):
    """In all rows of the file, empty in those of other models; JSON has them in the rows that have them."""
    both = attrs.evolve(result, cases=(fakes.case_result(), fakes.language_result()))
    write_result(both, tmp_path)
    other, language = records(tmp_path / "summary.csv")
    own = [field.name for field in attrs.fields(CaseResult) if LANGUAGE in field.metadata]
    assert own
    assert {other[name] for name in own} == {""}
    assert language | SUMMARY == language
    assert [language[name] for name in own] == [str(getattr(both.cases[1], name)) for name in own]
    first, second = json.loads((tmp_path / "result.json").read_text())["cases"]
    assert set(second) - set(first) == set(own)
    assert second["mfu"] == 0.354


def test_result_json_holds_each_field_under_its_key(result, tmp_path):
    write_result(result, tmp_path)
    stored = json.loads((tmp_path / "result.json").read_text())
    (case,) = stored.pop("cases")
    assert stored == {
        "title": "by hand", "seed": 5, "version": "1.2", "baseline": "base",
        "experiment": {"title": "by hand", "seed": 5}, "sources": {"model": "a paper"},
        "versions": {"numpy": "2.1"}, "files": {}, "candidates": [],
    }  # fmt: skip
    assert case.pop("notes") == ["first note", "second note"]
    assert case.pop("extrapolated") is False
    assert {key: str(value) for key, value in case.items()} == {key: SUMMARY[key] for key in case}
    assert len(case) == len(SUMMARY) - 2


def test_experiment_toml_has_the_seed_that_was_used(result, tmp_path):
    assert [path.name for path in write_result(result, tmp_path)] == [
        "result.json", "summary.csv", "experiment.toml",
    ]  # fmt: skip
    text = (tmp_path / "experiment.toml").read_text()
    assert tomllib.loads(text) == {"title": "by hand", "seed": 5}
    assert text.startswith("# Written by sipml 1.2;")
    assert "\n# Made with numpy 2.1\n" in text


def test_a_case_that_did_not_run_has_no_numbers(result, tmp_path, records):
    """Empty in summary.csv, null in result.json; the reason stands in both."""
    unfit = CaseResult(
        workload="model", topology="small", status="infeasible", reason="no room", gpus=24, bandwidth_gbps=7.0
    )
    write_result(attrs.evolve(result, cases=(*result.cases, unfit)), tmp_path)
    _, row = records(tmp_path / "summary.csv")
    assert (row["status"], row["reason"]) == ("infeasible", "no room")
    assert {key for key, value in row.items() if value} == {
        "workload", "topology", "status", "reason", "gpus", "bandwidth_gbps", "extrapolated",
    }  # fmt: skip
    stored = json.loads((tmp_path / "result.json").read_text())["cases"][1]
    assert stored["iteration_us"] is stored["speedup"] is stored["mp"] is None


def test_the_plans_that_were_tried_are_in_a_file_of_their_own(result, fakes, tmp_path, records):
    """And a file of an earlier run, in which degrees were left out, does not stay."""
    losers = tuple(fakes.case_result(mp=mp) for mp in (1, 2, 3))
    write_result(attrs.evolve(result, candidates=losers), tmp_path)
    assert [row["mp"] for row in records(tmp_path / "candidates.csv")] == ["1", "2", "3"]
    write_result(result, tmp_path)
    assert not (tmp_path / "candidates.csv").exists()


def test_files_are_copied_and_no_path_of_the_machine_stands_anywhere(result, tmp_path):
    """Two files of one name, in different folders, stay two."""
    texts = {}
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        texts[folder] = tmp_path / folder / "net.csv"
        texts[folder].write_text(folder)
    hashes = {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in texts.values()}
    named = {"title": "by hand", "topology": [{"file": str(path)} for path in texts.values()]}
    out = tmp_path / "out"
    out.mkdir()
    write_result(attrs.evolve(result, experiment=named, files=hashes), out)
    table = tomllib.loads((out / "experiment.toml").read_text())
    assert [(out / each["file"]).read_text() for each in table["topology"]] == ["a", "b"]
    for name in ("experiment.toml", "result.json", "summary.csv"):
        assert str(tmp_path) not in (out / name).read_text()


def test_a_number_that_json_does_not_have_is_refused_and_nothing_is_written(result, tmp_path):
    bad = attrs.evolve(result, cases=(attrs.evolve(result.cases[0], speedup=float("nan")),))
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_result(bad, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    """The new content goes to a file beside it, which takes its place at once or is removed."""
    path = tmp_path / "summary.csv"
    write_atomically(path, b"old")

    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(ConfigError, match=r"cannot write .*summary.csv: No space left on device"):
        write_atomically(path, b"new")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("summary.csv", b"old")]


def test_a_folder_is_made_with_its_parents(tmp_path):
    prepare_folder(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []
