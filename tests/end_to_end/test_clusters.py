"""Sweeps on other machines: the same bytes as here, and one line where they cannot be reached."""

import socket
import subprocess
import sys
import time

import pytest

from sipml_core.errors import ConfigError, SipmlError
from sipml_core.executing import InThisProcess, executor_for
from sipml_core.plugin import load
from sipml_core.report.sweepreport import sweep_csv
from sipml_core.searching import probe_of
from sipml_core.store import ResultStore
from sipml_core.sweeping import carry_out_sweep, read_sweep

NO_DASK = "Dask is not installed: pip install 'sipml[dask]'"
NO_SUBMITIT = "submitit is not installed: pip install 'sipml[slurm]'"

SWEEP = {
    "title": "Small",
    "experiment": {
        "title": "small",
        "cluster": {"gpus": 8, "bandwidth_gbps": 400},
        "workload": [
            {
                "name": "gpt",
                "layers": 1,
                "hidden": 128,
                "heads": 4,
                "sequence": 32,
                "vocabulary": 500,
                "plan": {"global_batch": 16},
            }
        ],
        "topology": [{"name": "elect-flat"}, {"name": "sip-ring"}],
    },
    "axes": {"cluster.bandwidth_gbps": [100, 400], "workload.plan.mp": [1, 2]},
}


@pytest.fixture(scope="module")
def swept():
    """swept(executor, store): the CSV of a sweep of eight runs."""

    def run(executor, store=None):
        found = carry_out_sweep(read_sweep(SWEEP), load(), executor, store or ResultStore(None))
        return sweep_csv(found)

    return run


@pytest.fixture(scope="module")
def one(swept):
    return swept(InThisProcess())


@pytest.fixture
def local_cluster():
    """The address of a Dask cluster of two threads in this process."""
    distributed = pytest.importorskip("distributed", reason=NO_DASK)
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None, protocol="tcp"
    ) as cluster:
        yield cluster.scheduler_address


def identity():
    return {"sipml": "0.1", "code": "abc"}


def stranger():
    """What another installation says of itself: worker threads run it under another name."""
    import threading

    return {"sipml": "0.1", "code": "abc" if threading.current_thread() is threading.main_thread() else "xyz"}


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
def test_dask_gives_the_bytes_of_one_process(local_cluster, swept, one):
    on = local_cluster.replace("tcp://", "dask://")
    assert swept(executor_for(on, probe=probe_of(load()))) == one


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
def test_dask_workers_are_asked_who_they_are(local_cluster):
    with pytest.raises(ConfigError, match=r"the Dask worker tcp://\S+ has code xyz, here it is abc"):
        executor_for(local_cluster, probe=stranger)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
def test_an_error_of_a_piece_comes_back_from_dask(local_cluster):
    with pytest.raises(ZeroDivisionError), executor_for(local_cluster, probe=identity) as executor:
        executor.each(lambda n: 1 // n, [1, 0], lambda number, value: None)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_a_scheduler_that_does_not_answer_is_named(monkeypatch):
    pytest.importorskip("distributed", reason=NO_DASK)
    monkeypatch.setattr("sipml_core.executing.daskcluster.PATIENCE_S", 0.5)
    on = f"dask://127.0.0.1:{free_port()}"
    with pytest.raises(ConfigError, match=f"no Dask scheduler answers at {on}"):
        executor_for(on)


def test_without_dask_or_submitit_the_remedy_is_named(monkeypatch):
    for module, on in (("distributed", "dask://127.0.0.1:1"), ("submitit", "slurm")):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(ConfigError, match=r"python -m pip install 'sipml\[(dask|slurm)\]'"):
            executor_for(on)


@pytest.mark.slow
def test_a_real_scheduler_with_two_workers(swept, one, tmp_path):
    """Started as a user starts them, each in a process of its own; the command line uses them."""
    pytest.importorskip("distributed", reason=NO_DASK)
    port = free_port()
    at = f"tcp://127.0.0.1:{port}"
    dask = [sys.executable, "-m", "dask"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": tmp_path}
    scheduler = [*dask, "scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"]
    worker = [*dask, "worker", at, "--nthreads", "1", "--no-dashboard"]
    started = [subprocess.Popen(command, **quiet) for command in (scheduler, worker, worker)]
    try:
        assert swept(patiently(at.replace("tcp", "dask"))) == one
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(timeout=30)


def patiently(on, patience_s=60):
    """The executor at an address, when its scheduler is there."""
    until = time.monotonic() + patience_s
    while True:
        try:
            return executor_for(on, probe=probe_of(load()))
        except ConfigError:
            if time.monotonic() > until:
                raise


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_jobs_of_slurm_give_the_bytes_of_one_process(swept, one, tmp_path):
    """Jobs of submitit on this machine keep what they find in the store themselves."""
    pytest.importorskip("submitit", reason=NO_SUBMITIT)
    store = ResultStore(tmp_path / "store")
    assert swept(executor_for("local-jobs", 2, logs=tmp_path / "logs"), store) == one
    assert len(list(store.files())) == 8


@pytest.mark.parametrize("on", ["slurm", "slurm:partition", "local-jobs:colour=3"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_slurm_that_is_not_here_and_parameters_that_are_none_are_refused(on, tmp_path, monkeypatch):
    pytest.importorskip("submitit", reason=NO_SUBMITIT)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"--on (slurm|local-jobs)"):
        executor_for(on, 2, logs=tmp_path)


def test_jobs_need_a_store(swept, tmp_path):
    class Jobs(InThisProcess):
        keeps = True

    with pytest.raises(SipmlError, match="need a store that all of them see"):
        swept(Jobs())
