"""``share`` prints a row for each network, writes what became of each job, and names who could not run."""

import csv
import subprocess
import sys

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
