"""``share`` prints a row for each network, writes what became of each job, and names who could not run."""

import csv
import subprocess
import sys

import pytest
from click.testing import CliRunner

from sipml_core.cli.main import main

FILE = """
title = "two"
[cluster]
gpus = 8
bandwidth_gbps = 200
[plan]
global_batch = 8
[[workload]]
name = "gpt"
layers = 1
hidden = 64
heads = 4
vocabulary = 128
sequence = 32
[[topology]]
name = "elect-flat"
[[topology]]
name = "fat-tree"
[[job]]
name = "one"
workload = "gpt"
gpus = 1
iterations = 5
[[job]]
name = "eight"
workload = "gpt"
gpus = 8
iterations = 5
"""


def share(folder, text=FILE):
    (folder / "two.toml").write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "sipml_core", "share", "two.toml"], cwd=folder, capture_output=True, text=True
    )


def test_jobs_are_written_in_order_of_arrival_and_the_same_twice(tmp_path):
    """The job of all GPUs starts when the one of one GPU has ended."""
    done = share(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "2 jobs, first-fit" in done.stdout
    written = (tmp_path / "results" / "two" / "jobs.csv").read_bytes()
    rows = list(csv.DictReader(written.decode().splitlines()))
    assert [(row["topology"], row["job"], row["gpus_at"]) for row in rows] == [
        ("elect-flat", "one", "0"), ("elect-flat", "eight", "0-7"),
        ("fat-tree", "one", "0"), ("fat-tree", "eight", "0-7"),
    ]  # fmt: skip
    assert float(rows[1]["start_us"]) == float(rows[0]["end_us"]) > 0
    assert share(tmp_path).returncode == 0
    assert (tmp_path / "results" / "two" / "jobs.csv").read_bytes() == written


def test_a_file_that_cannot_be_is_one_line_and_status_2(tmp_path):
    done = share(tmp_path, FILE.replace('name = "eight"', 'name = "one"'))
    assert done.returncode == 2
    assert done.stderr.splitlines() == ["sipml: two.toml: job[0] and job[1] are both called 'one'"]


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["validate"], 0, "2 jobs of 2 kinds on 2 networks"),
        (["validate", "--set", "job.one.gpus=9"], 2, "job 'one' needs 9 GPUs, but cluster.gpus is 8"),
        (["share", "--set", "job.one.gpus=9"], 2, "job 'one' needs 9 GPUs, but cluster.gpus is 8"),
        (["run"], 2, "has jobs that share a cluster: python -m sipml_core share"),
    ],
)
def test_a_shared_file_is_validated_and_changed_and_run_names_share(tmp_path, arguments, status, told):
    (tmp_path / "two.toml").write_text(FILE)
    done = CliRunner().invoke(main, [*arguments, str(tmp_path / "two.toml")])
    assert done.exit_code == status
    assert told in done.output
