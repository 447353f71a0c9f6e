"""`run --details` and `--trace`: the files, what is said before they are written, and what is refused."""

import csv

import pytest
from click.testing import CliRunner

from sipml_core.cli.main import main
from sipml_core.details import decoded

EXPERIMENT = """
title = "cli"
[cluster]
gpus = 4
bandwidth_gbps = "200 Gbps"
[[workload]]
name = "gpt"
layers = 1
hidden = 64
heads = 2
sequence = 16
vocabulary = 100
strategy = { mp = 2, dp = 2, global_batch = 4 }
[[topology]]
name = "elect-flat"
[[topology]]
name = "sip-ocs"
"""


@pytest.fixture
def call(tmp_path):
    (tmp_path / "x.toml").write_text(EXPERIMENT)

    def run(*arguments):
        command = ["run", str(tmp_path / "x.toml"), "--out", str(tmp_path / "out"), *arguments]
        return CliRunner().invoke(main, command)

    return run


def test_tables_and_traces_of_each_case_are_written_and_their_size_is_said_before(call, tmp_path):
    result = call("--details", "--trace", str(tmp_path / "t.pftrace"))
    assert result.exit_code == 0, result.stderr
    first, second = result.stderr.splitlines()[-2:]
    assert first.startswith("writing details of about ")
    assert "slices of trace" in first
    assert second.startswith("wrote ")
    folder = tmp_path / "out" / "details"
    assert sorted(path.name for path in folder.iterdir()) == ["gpt-on-elect-flat", "gpt-on-sip-ocs"]
    names = {path.stem for path in (folder / "gpt-on-sip-ocs").iterdir()}
    assert names == {"gpus", "links", "traffic", "flows", "circuits"}
    assert "circuits" not in {path.stem for path in (folder / "gpt-on-elect-flat").iterdir()}
    rows = list(csv.DictReader((folder / "gpt-on-elect-flat" / "gpus.csv").read_text().splitlines()))
    assert [row["gpu"] for row in rows] == ["0", "1", "2", "3"]
    assert [row["simulated"] for row in rows] == ["true", "true", "false", "false"]
    traces = sorted(path.name for path in tmp_path.glob("*.pftrace"))
    assert traces == ["t-gpt-on-elect-flat.pftrace", "t-gpt-on-sip-ocs.pftrace"]
    assert any(packet.what == "begin" for packet in decoded((tmp_path / traces[0]).read_bytes()))


def test_cases_whose_labels_differ_by_signs_alone_have_files_of_their_own(call, tmp_path):
    labels = EXPERIMENT.replace('"elect-flat"', '"elect-flat"\nlabel = "a b"')
    (tmp_path / "x.toml").write_text(labels.replace('"sip-ocs"', '"sip-ocs"\nlabel = "a/b"'))
    assert call("--details").exit_code == 0
    folders = {path.name: path / "circuits.csv" for path in (tmp_path / "out" / "details").iterdir()}
    assert sorted(folders) == ["gpt-on-a-b", "gpt-on-a-b-2"]
    assert not folders["gpt-on-a-b"].exists()
    assert folders["gpt-on-a-b-2"].exists()


def test_the_result_is_the_same_with_details(call, tmp_path):
    def files():
        return {name: (tmp_path / "out" / name).read_bytes() for name in ("result.json", "summary.csv")}

    call()
    plain = files()
    call("--details")
    assert files() == plain


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--details", "--gpus", "0-4"), "--gpus must be from 0 to 3, got 4; nearest: 3"),
        (("--details", "--gpus", "x"), "--gpus must be numbers such as"),
        (("--details", "--replicas", "2"), "--replicas must be from 0 to 1, got 2; nearest: 1"),
        (("--details", "--window", "1ms"), "--window must be two times such as"),
        (("--details", "--window", "2ms..1ms"), "--window must begin before it ends"),
        (("--details", "--window", "1s..2s"), "--window must begin before the run of gpt on elect-flat ends"),
        (
            ("--details", "--details-limit", "1 kB"),
            "more than --details-limit 1 kB; choose --replicas, --gpus or",
        ),
        (("--trace", "t", "--details-limit", "1 kB"), "the trace would take about"),
        (("--trace", "nowhere/t"), "--trace: there is no folder"),
        (("--trace", "."), "--trace must be the name of a file, got the folder '.'"),
        (("--gpus", "1"), "--gpus chooses a part of --details or --trace; give one of them"),
    ],
)
def test_refusals_are_one_line(call, arguments, line):
    result = call(*arguments)
    assert result.exit_code == 2
    *cases, refusal = result.stderr.strip().splitlines()
    assert line in refusal
    assert all(": ok, " in told for told in cases)  # those that had run before it was known
    assert "Traceback" not in result.output


def test_parquet_where_pyarrow_is(call, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    assert call("--details").exit_code == 0
    table = parquet.read_table(tmp_path / "out" / "details" / "gpt-on-sip-ocs" / "flows.parquet")
    assert {"src", "dst", "joined_us", "arrived_us"} <= set(table.column_names)
    assert table.num_rows > 0
