"""Ctrl-C: one line that says what is left of the work, status 130, and nobody else speaks or stays."""

import csv
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from sipml_core.__main__ import start

LONG = """
title = "long"

[cluster]
gpus = 64
bandwidth_gbps = "100 Gbps"

[[workload]]
name = "transformer"
strategy = { mp = 8, dp = 8, global_batch = 64, iterations = 1000 }

[[topology]]
name = "elect-flat"
"""

#: A case of milliseconds, and one whose circuits are planned again every microsecond, for minutes.
TWO = """
title = "two"

[cluster]
gpus = 8
bandwidth_gbps = "50 Gbps"

[[workload]]
name = "gpt"
layers = 1
hidden = 256
heads = 4
sequence = 64
vocabulary = 10000
strategy = { mp = 2, dp = 4, global_batch = 16, iterations = 60 }

[[topology]]
name = "elect-flat"

[[topology]]
name = "sip-ring"
interval_us = 1
reconfiguration_us = 0.5
"""

#: Run by each Python that starts, see `site`: holds workers where it is told, and says that it does, and when
#: they have got an interrupt: as an error, or one that is blocked and waits.
HOLDS = """
import os, signal, sys, time

def say(what):
    open(os.path.join(os.path.dirname(__file__), f"{what}-{os.getpid()}"), "w").close()

def hold():
    say("held")
    try:
        while signal.SIGINT not in signal.sigpending():
            time.sleep(0.01)
    finally:
        say("told")
    time.sleep(60)

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == os.environ["HELD_AT"]:
            hold()

if "--multiprocessing-fork" in sys.orig_argv:
    if os.environ["HELD_AT"]:
        sys.meta_path.insert(0, Finder)
    else:
        hold()
"""


@pytest.fixture
def interrupted(tmp_path):
    """stderr and exit status of a command that gets a Ctrl-C as a terminal sends it, once `begun()`."""
    (tmp_path / "long.toml").write_text(LONG)
    running = []

    def run(*arguments, begun, after_s, environment=None):
        command = subprocess.Popen(
            [sys.executable, "-m", "sipml_core", *map(str, arguments)],
            cwd=tmp_path, env={**os.environ, **(environment or {})}, text=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
            # A shell's background job, as a test run may be, starts with interrupts ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip
        running.append(command)
        until = time.monotonic() + 60
        while not begun():
            assert command.poll() is None, command.stderr.read()
            assert time.monotonic() < until
            time.sleep(0.01)
        time.sleep(after_s)
        os.killpg(command.pid, signal.SIGINT)
        # Ends with the last process that has stderr open, workers included.
        _, stderr = command.communicate(timeout=30)
        return stderr, command.returncode

    yield run
    for command in running:
        if command.poll() is None:
            os.killpg(command.pid, signal.SIGKILL)
        command.wait()
        command.stderr.close()


def test_run_says_that_nothing_was_written(interrupted, tmp_path):
    out = tmp_path / "out"
    stderr, status = interrupted("run", "long.toml", "--out", out, begun=out.exists, after_s=0.5)
    assert (stderr, status) == (f"sipml: interrupted; nothing was written to {out}\n", 130)
    assert not out.exists()


def test_an_interrupt_before_the_command_line_is_there_is_one_line(monkeypatch, capsys):
    """While it is imported, say; nothing of sipml but the entry has run then."""

    def interrupted(prog_name):
        raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "sipml_core.cli.main", SimpleNamespace(main=interrupted))
    with pytest.raises(SystemExit) as end:
        start()
    assert (end.value.code, capsys.readouterr().err) == (130, "sipml: interrupted\n")


def test_run_keeps_what_ran(interrupted, tmp_path):
    """A quick case first, then one of minutes: the first is a row, the second says that the run ended."""
    out = tmp_path / "out"
    (tmp_path / "two.toml").write_text(TWO)
    stderr, status = interrupted("run", "two.toml", "--out", out, begun=out.exists, after_s=4.0)
    first, last = stderr.splitlines()
    assert first.startswith("gpt on elect-flat: ok, ")
    assert last == (f"sipml: interrupted; what ran until then is in {out}: the same command goes on from it")
    assert status == 130
    rows = csv.DictReader((out / "summary.csv").read_text().splitlines())
    statuses = {row["topology"]: row["status"] for row in rows}
    assert statuses == {"elect-flat": "ok", "sip-ring": "unfinished"}


def test_search_says_what_the_cache_kept(interrupted, tmp_path):
    """Workers are at simulations of minutes: they end at once, and without a word."""
    cache, out = tmp_path / "cache", tmp_path / "out"
    stderr, status = interrupted(
        "search", "long.toml", "--jobs", 2, "--cache", cache, "--out", out,
        begun=lambda: any(cache.rglob("*.json")), after_s=0.0,
    )  # fmt: skip
    assert stderr == (
        f"sipml: interrupted; nothing was written to {out}; any results so far are kept in {cache}: "
        "the same command goes on from them\n"
    )
    assert status == 130
    assert not out.exists()


@pytest.mark.parametrize("at", ["", "numpy", "sipml_core.searching"])
def test_workers_that_are_just_starting_say_nothing(interrupted, tmp_path, at):
    """Both are held as Python starts, or where they import this, and get the interrupt before the command
    does, which ends them: they have all the time to say something."""
    out, here = tmp_path / "out", tmp_path / "held"
    here.mkdir()
    (here / "sitecustomize.py").write_text(HOLDS)

    def workers(what):
        return {int(file.name.removeprefix(f"{what}-")) for file in here.glob(f"{what}-*")}

    def workers_got_it():
        if len(held := workers("held")) < 2:
            return False
        for worker in held - asked:
            os.kill(worker, signal.SIGINT)
            asked.add(worker)
        return len(workers("told")) == 2

    asked = set()
    stderr, status = interrupted(
        "reproduce", "fig5", "--quick", "--no-picture", "--no-cache", "--jobs", 2, "--out", out,
        begun=workers_got_it, after_s=0.0,
        environment={"PYTHONPATH": os.pathsep.join([str(here), *sys.path]), "HELD_AT": at},
    )  # fmt: skip
    assert (stderr, status) == (f"sipml: interrupted; nothing was written to {out}\n", 130)
