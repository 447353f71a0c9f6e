"""What two results differ in, and by how much."""

import json

import pytest

from sipml_core.errors import ConfigError
from sipml_core.report.comparison import compared, read_written, result_pairs
from sipml_core.report.comparisonreport import comparison_lines, comparison_tables, percent


def result(gbps=400.0, **times_us):
    """A run of one model on networks whose iterations take so long."""
    return {
        "title": "t",
        "seed": 0,
        "version": "0.1.0",
        "experiment": {
            "cluster": {"gpus": 8, "bandwidth_gbps": gbps},
            "topology": [{"name": "ring", "label": label, "reach_hops": 8} for label in times_us],
        },
        "cases": [
            {"workload": "gpt", "topology": label, "status": "ok", "iteration_us": time_us, "mp": 2}
            for label, time_us in times_us.items()
        ],
    }


def written(folder, document):
    folder.mkdir()
    (folder / "result.json").write_text(json.dumps(document))
    return folder


@pytest.fixture
def comparison(tmp_path):
    """comparison(one, other): what differs between two documents."""

    def of(*documents):
        folders = [written(tmp_path / str(number), each) for number, each in enumerate(documents)]
        ((first, second),) = result_pairs(*folders)
        return compared(first, second)

    return of


def test_equal_results_differ_in_nothing(comparison):
    found = comparison(result(slow=100.0), result(slow=100.0))
    assert found.same
    assert comparison_lines(found)[0].endswith("1 rows in both, and nothing differs")
    assert list(comparison_tables(found)) == []


def test_inputs_come_first_then_columns_by_how_much_they_moved(comparison):
    """Bandwidth doubled; 100 to 50 us is a larger move than 80 to 100 us."""
    found = comparison(result(400.0, slow=100.0, fast=80.0), result(800.0, slow=50.0, fast=100.0))
    assert found.inputs == {"cluster.bandwidth_gbps": (400.0, 800.0)}
    (change,) = found.columns
    assert (change.column, change.changed, change.of) == ("iteration_us", 2, 2)
    assert (change.at, change.before, change.after, change.ratio) == (("gpt", "slow"), 100.0, 50.0, 0.5)
    assert [(key[1], before, after) for _, key, before, after in found.moved] == [
        ("slow", 100.0, 50.0), ("fast", 80.0, 100.0),
    ]  # fmt: skip
    assert [table.title.plain for table in comparison_tables(found)] == [
        "what was asked", "what came out", "what moved most: iteration_us",
    ]  # fmt: skip


def test_rows_of_one_side_are_told_and_not_compared(comparison):
    found = comparison(result(slow=100.0, old=1.0), result(slow=100.0, new=2.0))
    assert (found.only_first, found.only_second, found.columns) == ((("gpt", "old"),), (("gpt", "new"),), ())
    assert any("only in" in line and "gpt, old" in line for line in comparison_lines(found))


def test_a_status_that_changed_is_a_change(comparison):
    other = result(slow=100.0)
    other["cases"][0] |= {"status": "failed", "iteration_us": None}
    found = comparison(result(slow=100.0), other)
    assert {(c.column, c.before, c.after) for c in found.columns} == {
        ("status", "ok", "failed"), ("iteration_us", 100.0, ""),
    }  # fmt: skip
    assert found.moved == ()


def test_columns_that_only_one_has_are_named(comparison):
    other = result(slow=100.0)
    other["cases"][0]["tokens_per_s"] = 3.0
    found = comparison(result(slow=100.0), other)
    assert found.other_columns == ("tokens_per_s",)


SWEEP = "cluster.gpus,series,workload,topology,status,iteration_us,seed,hash,cluster.launch_us\n"


def test_rows_of_a_sweep_are_matched_by_their_axes(tmp_path):
    """The axis tells them apart, the launch time is an input that differs, and hashes are neither."""
    (tmp_path / "a.csv").write_text(SWEEP + "8,r,gpt,r,ok,10,0,ab,1\n16,r,gpt,r,ok,20,0,cd,1\n")
    (tmp_path / "b.csv").write_text(SWEEP + "16,r,gpt,r,ok,25,0,ef,2\n8,r,gpt,r,ok,10,0,gh,2\n")
    ((first, second),) = result_pairs(tmp_path / "a.csv", tmp_path / "b.csv")
    found = compared(first, second)
    assert found.key == ("workload", "topology", "cluster.gpus")
    assert found.inputs == {"cluster.launch_us": ("1.0", "2.0")}
    assert [(c.column, c.changed, c.at) for c in found.columns] == [("iteration_us", 1, ("gpt", "r", "16"))]


def test_folders_of_tables_are_compared_by_name(tmp_path):
    for folder, hours in (("one", 1), ("two", 2)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "fig5.csv").write_text(f"workload,series,x,time_to_accuracy_s\nm,s,1,{hours}\n")
    (tmp_path / "two" / "fig6.csv").write_text("workload\nm\n")
    ((first, second),) = result_pairs(tmp_path / "one", tmp_path / "two")
    assert [c.ratio for c in compared(first, second).columns] == [2.0]
    (tmp_path / "two" / "fig5.csv").unlink()
    with pytest.raises(ConfigError, match="name a file of each: fig5.csv; fig6.csv"):
        result_pairs(tmp_path / "one", tmp_path / "two")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "result.json",
            '{"version": "0.0.1", "cases": []}',
            "format (sipml 0.0.1): it has no 'experiment'",
        ),
        ("result.json", "[]", "is no result, or of an older format: it has no 'cases'"),
        ("result.json", "{", "is no JSON"),
        ("x.csv", "a,b\n1,2\n", "is no table of results, or of an older format"),
        ("x.csv", "", "is no table of results, or of an older format"),
    ],
)
def test_what_is_no_result_is_refused(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError) as error:
        read_written(tmp_path / name)
    assert message in str(error.value)


def test_unlike_results_and_folders_without_any_are_refused(tmp_path):
    one = written(tmp_path / "run", result(slow=1.0))
    search = {**result(slow=1.0), "best": [], "rows": []}
    (tmp_path / "search").mkdir()
    (tmp_path / "search" / "search.json").write_text(json.dumps(search))
    with pytest.raises(ConfigError, match=r"is of a run and .* of a search; compare like with like"):
        result_pairs(one / "result.json", tmp_path / "search" / "search.json")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="has no result: neither"):
        result_pairs(tmp_path / "empty", one)
    with pytest.raises(ConfigError, match=r"cannot read .*: No such file"):
        result_pairs(tmp_path / "none.json", one)


def test_changes_are_percents_or_factors():
    assert [percent(4.0, after) for after in (3.0, 4.2, 44.0)] == ["-25 %", "+5 %", "11x"]
