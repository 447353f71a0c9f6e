"""Every place does all of the work, once, and tells each value under its own number."""

import math
import os
import subprocess
import sys

import pytest

from sipml_core.errors import ConfigError, SipmlError
from sipml_core.executing.choosing import executor_for
from sipml_core.executing.executors import InThisProcess, WorkerProcesses, refuse_stranger
from sipml_core.executing.shards import Shard


def values(executor, function, pieces):
    """Number -> value; a number that is told twice fails."""
    found = {}

    def received(number, value):
        assert number not in found
        found[number] = value

    with executor:
        executor.each(function, pieces, received)
    return found


@pytest.mark.parametrize("executor", [InThisProcess(), WorkerProcesses(2)], ids=["here", "processes"])
def test_all_values_come_under_their_numbers(executor):
    """Factorials of 0 to 9: none is like another, from 1 on."""
    assert values(executor, math.factorial, range(10)) == {n: math.factorial(n) for n in range(10)}


def test_an_error_of_a_piece_is_raised():
    with pytest.raises(ValueError, match="negative"), WorkerProcesses(2) as executor:
        executor.each(math.factorial, [1, -1], lambda number, value: None)


def test_a_process_that_dies_is_told():
    with pytest.raises(SipmlError, match="a worker process ended"), WorkerProcesses(2) as executor:
        executor.each(os._exit, [1, 1], lambda number, value: None)


def ends_at_3(number):
    """The number, but for 3, which ends the process."""
    return os._exit(1) if number == 3 else number


@pytest.mark.interconnects
def test_the_piece_that_ends_its_process_is_found_and_the_others_are_done():
    """Of ten, number 3; each of the others is told once, those that went down with it as well."""
    found, lost = [], []
    with WorkerProcesses(2) as executor:
        executor.each(ends_at_3, range(10), lambda number, value: found.append(value), lost.append)
    assert lost == [3]
    assert sorted(found) == [n for n in range(10) if n != 3]


ORPHANS = """
import os
from sipml_core.executing import WorkerProcesses
if __name__ == "__main__":
    with WorkerProcesses(1) as executor:
        executor.each(os.getpgid, [0], lambda number, value: None)
        os.kill(os.getpid(), 9)
"""


def test_workers_end_with_the_process_that_started_them(tmp_path):
    """Even where it is killed, and cannot tell them: what they write to is closed by the last of them."""
    (tmp_path / "orphans.py").write_text(ORPHANS)
    killed = subprocess.run([sys.executable, tmp_path / "orphans.py"], capture_output=True, timeout=60)
    assert killed.returncode == -9


def test_jobs_choose_the_executor():
    assert isinstance(executor_for(jobs=1), InThisProcess)
    assert executor_for(jobs=3).workers == 3


@pytest.mark.parametrize("on", ["", "spark://here", "http://x"])
def test_places_that_do_not_exist_are_refused(on):
    with pytest.raises(ConfigError, match=r"--on must be dask://HOST:PORT, or slurm"):
        executor_for(on)


def test_shards_are_disjoint_and_are_all():
    """Ten pieces in three shards: 4, 3 and 3."""
    parts = [Shard(number, 3).part(range(10)) for number in (1, 2, 3)]
    assert parts == [[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]]


@pytest.mark.parametrize("text", ["0/4", "5/4", "4", "a/b", "1/0", "1/1000000", "-1/4"])
def test_parts_that_are_none_are_refused(text):
    with pytest.raises(ConfigError, match="--shard must be a part of a whole such as 3/16"):
        Shard.read(text)


def test_a_worker_of_another_version_is_named():
    with pytest.raises(ConfigError, match=r"the worker w has sipml 0\.2, here it is 0\.1"):
        refuse_stranger({"sipml": "0.1"}, {"sipml": "0.2"}, "the worker w")
    with pytest.raises(ConfigError, match="has code none"):
        refuse_stranger({"sipml": "0.1", "code": "abc"}, {"sipml": "0.1"}, "a worker")
