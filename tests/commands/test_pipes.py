"""Output that nobody reads any more ends a command quietly, with 128 + SIGPIPE, as shells have it."""

import os
import subprocess
import sys

import pytest

ONE = """
title = "one"

[cluster]
gpus = 2
bandwidth_gbps = 100

[workload]
name = "gpt"
layers = 1

[plan]
mp = 1
global_batch = 2

[[topology]]
name = "elect-flat"
"""


def with_no_reader(*arguments, cwd, streams=("stdout",)):
    """Return exit status and the other streams of a command that writes to a pipe without a reader."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        command = subprocess.run(
            [sys.executable, "-m", "sipml_core", *arguments],
            cwd=cwd, text=True, check=False, timeout=60,
            **{name: writer if name in streams else subprocess.PIPE for name in ("stdout", "stderr")},
        )  # fmt: skip
    finally:
        os.close(writer)
    return command.returncode, command.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["plugins", "--help"], ["--version"], ["plugins"]])
def test_what_only_prints_ends_quietly(tmp_path, arguments):
    assert with_no_reader(*arguments, cwd=tmp_path) == (141, "")


@pytest.mark.interconnects
def test_a_run_is_written_and_ends_without_a_traceback(tmp_path):
    """What stderr says while it runs is there, and nothing of the pipe."""
    (tmp_path / "one.toml").write_text(ONE)
    status, stderr = with_no_reader("run", "one.toml", "--out", "out", cwd=tmp_path)
    assert status == 141
    assert stderr.splitlines()[0].startswith("gpt on elect-flat: ok")
    assert "ipe" not in stderr
    assert (tmp_path / "out" / "summary.csv").exists()


def test_a_line_for_an_error_that_nobody_reads(tmp_path):
    """Both streams go to a reader that has left."""
    status, _ = with_no_reader("run", "nothing.toml", cwd=tmp_path, streams=("stdout", "stderr"))
    assert status == 141
