"""The executor that a command line asks for."""

from __future__ import annotations

from pathlib import Path

from sipml_core.errors import ConfigError, shown
from sipml_core.executing.executors import Executor, InThisProcess, Probe, WorkerProcesses


def executor_for(
    on: str | None = None,
    jobs: int = 1,
    *,
    probe: Probe = dict,
    logs: Path = Path("results/jobs"),
) -> Executor:
    """Return where work is done.

    Parameters
    ----------
    on
        "dask://HOST:PORT", the scheduler of a Dask cluster; "slurm", with parameters such as
        "slurm:partition=batch,timeout_min=60"; "local-jobs", jobs of submitit on this machine; None: here.
    jobs
        Processes of this machine, or jobs of Slurm.
    probe
        Called here and on every worker of another machine: what it says must be the same.
    logs
        Folder in which jobs of Slurm write what they say.

    Raises
    ------
    ConfigError
        There is no such place, or it cannot be reached.
    """
    if on is None:
        return WorkerProcesses(jobs) if jobs > 1 else InThisProcess()
    if on.startswith(("dask://", "tcp://", "tls://")):
        from sipml_core.executing.daskcluster import DaskCluster

        return DaskCluster(on, probe)
    if on.partition(":")[0] in ("slurm", "local-jobs"):
        from sipml_core.executing.slurmjobs import SlurmJobs

        return SlurmJobs(on, jobs, logs)
    raise ConfigError(f"--on must be dask://HOST:PORT, or slurm[:KEY=VALUE,...], got {shown(on)}")
