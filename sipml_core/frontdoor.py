"""What a notebook or a script needs, in a few functions; `sipml_core` itself shows them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from sipml_core.cases import plan_circuits as plan_on_topology
from sipml_core.cases import run_experiment
from sipml_core.errors import ConfigError, shown
from sipml_core.executing import executor_for
from sipml_core.experiment import Experiment, open_experiment
from sipml_core.model import SILENT, CircuitPlan, Progress, Result, TrafficMatrix
from sipml_core.plugin import Registry
from sipml_core.plugin import load as load_plugins
from sipml_core.scheduling import read_matrix
from sipml_core.searching import SearchResult, probe_of
from sipml_core.searching import search as search_experiments
from sipml_core.store import ResultStore, usable_store
from sipml_core.sweeping import DEFAULT_LIMIT, SweepResult, carry_out_sweep, read_sweep, with_axes

#: The name of an experiment file, its tables, or an experiment.
Source = str | os.PathLike[str] | Mapping[str, Any] | Experiment


def load(
    path: str | os.PathLike[str] | Mapping[str, Any], *, set: Mapping[str, Any] | None = None
) -> Experiment:
    """Return the experiment of a TOML file, or of its tables, every value checked.

    Parameters
    ----------
    set
        Changes by path, such as ``{"cluster.bandwidth_gbps": "4 Tbps", "topology.sip-ring.reach_hops": 8}``.
        Names of files in it count from the working directory.

    Raises
    ------
    ConfigError
        One line that names the file and the key at fault.
    """
    return open_experiment(path, _registry(), set=set)


def run(
    experiment: Source,
    *,
    set: Mapping[str, Any] | None = None,
    max_wall_s: float | None = None,
    progress: Progress = SILENT,
    details: bool = False,
) -> Result:
    """Return the simulated result of every workload on every interconnect.

    What cannot run is a row with its reason, see `CaseResult.status`. Plugins that observe runs are told.

    Parameters
    ----------
    experiment
        The name of a TOML file, its tables, or an `Experiment`.
    set
        As in `load`; not with an `Experiment`.
    max_wall_s
        Cases that are not simulated by then are rows with the status "unfinished". [s]
    details
        Keep what ``result.details(workload, topology)`` needs.

    Raises
    ------
    ConfigError
        The file, or what it asks for, cannot be.
    """
    registry = _registry()
    opened = open_experiment(experiment, registry, set=set)
    for problem in registry.tell("sipml_run_started", experiment=opened):
        warnings.warn(problem, stacklevel=2)
    result = run_experiment(opened, max_wall_s=max_wall_s, progress=progress, details=details)
    for problem in registry.tell("sipml_run_finished", result=result):
        warnings.warn(problem, stacklevel=2)
    return result


def plot(
    result: Result,
    picture: str,
    *,
    workload: str | None = None,
    topology: str | None = None,
    gpus: Sequence[int] | None = None,
    window_us: tuple[float, float] | None = None,
    width_in: float | None = None,
    title: bool = True,
) -> Any:
    """Return a picture of a result as a matplotlib figure.

    Parameters
    ----------
    result
        Of ``run(..., details=True)``.
    picture
        "times", of all cases, or of one case "timeline", "pipeline", "traffic", "links", "flows",
        "wavelengths", "circuits", "network".
    workload, topology
        The case; they may be left out where one case is left.
    gpus, window_us
        Part of the run; left out: all. [us]
    width_in
        A column of a paper is 3.3 in wide. [in]
    """
    from sipml_core.details import CaseDetails, Selection
    from sipml_core.report import PictureLook, case_picture, times_picture

    if not isinstance(result, Result):
        raise ConfigError(f"plot needs the result of run(..., details=True), got {shown(result)}")
    look = PictureLook(width_in=width_in, titled=title)
    if picture == "times":
        return times_picture(result.cases, look)
    details = result.details(workload, topology)
    assert isinstance(details, CaseDetails)
    chosen = Selection(gpus=None if gpus is None else tuple(sorted(gpus)), window_us=window_us)
    return case_picture(details.selected(chosen), picture, look)


def search(
    experiment: Source,
    *,
    set: Mapping[str, Any] | None = None,
    jobs: int = 1,
    store: str | os.PathLike[str] | None = None,
    progress: Progress = SILENT,
) -> SearchResult:
    """Return the best plan for each workload on each interconnect, and every candidate.

    Parameters
    ----------
    experiment, set
        As in `run`.
    jobs
        Processes; the result is the same for any number. A script that asks for more than one needs
        ``if __name__ == "__main__":`` around what it does.
    store
        Folder in which results are looked up and kept; left out: that of the command ``search``.
    """
    opened = open_experiment(experiment, _registry(), set=set)
    (result,) = search_experiments([opened], jobs=jobs, store=_store(store), progress=progress)
    return result


def sweep(
    source: str | os.PathLike[str] | Mapping[str, Any],
    axes: Mapping[str, Sequence[Any]] | None = None,
    *,
    set: Mapping[str, Any] | None = None,
    jobs: int = 1,
    on: str | None = None,
    store: str | os.PathLike[str] | None = None,
    quick: bool = False,
    limit: int = DEFAULT_LIMIT,
    retry_failed: bool = False,
    progress: Progress = SILENT,
) -> SweepResult:
    """Return a row for each run of a sweep: ``sweep(...).to_frame()`` is a table of them.

    Parameters
    ----------
    source
        The name of a sweep's TOML file, or of an experiment's; or the tables of a sweep.
    axes
        Values by key, ``{"cluster.bandwidth_gbps": [400, 800]}``: further axes, or other values for those
        of the file.
    set
        Single values by key, as in `load`.
    jobs, store
        As in `search`.
    on
        "dask://HOST:PORT" or "slurm": where runs are done; left out: here.
    quick
        Only the values that the sweep has for a first look.
    limit
        Runs that the sweep may have.
    retry_failed
        Try again what the store says cannot run, or failed.

    Raises
    ------
    ConfigError
        A point cannot be, or there are too many. Nothing has run then.
    """
    single = {key: [value] for key, value in (set or {}).items()}
    asked = with_axes(read_sweep(source), {**single, **(axes or {})})
    registry = _registry()
    found = carry_out_sweep(
        asked,
        registry,
        executor_for(on, jobs, probe=probe_of(registry)),
        _store(store),
        quick=quick,
        limit=limit,
        retry_failed=retry_failed,
        progress=progress,
    )
    assert isinstance(found, SweepResult)  # only a shard may be unfinished
    return found


def plan_circuits(
    topology: str,
    matrix: str | os.PathLike[str] | ArrayLike,
    *,
    bandwidth: float | str = "2 Tbps",
    scheduler: str | None = None,
    set: Mapping[str, Any] | None = None,
) -> CircuitPlan:
    """Return circuits for one traffic matrix.

    Parameters
    ----------
    topology
        A circuit topology, as ``python -m sipml_core plugins`` names it.
    matrix
        Demand from each GPU (row) to each (column), or the name of a .csv or .npy file. [N, N]
    bandwidth
        Of one GPU, each direction. [Gbps, or text with a unit]
    scheduler
        Left out: the topology's own.
    set
        Options of the topology.
    """
    if isinstance(matrix, (str, os.PathLike)):
        traffic = read_matrix(Path(matrix))
    else:
        traffic = TrafficMatrix.from_dense(matrix)
    table = {"name": topology, **(set or {})} | ({"scheduler": scheduler} if scheduler else {})
    plan, _ = plan_on_topology(_registry(), table, traffic, bandwidth)
    return plan


def _store(folder: str | os.PathLike[str] | None) -> ResultStore:
    """Return the store in a folder, or the user's own."""
    store, problem = usable_store(None if folder is None else Path(folder))
    if problem:
        warnings.warn(problem, stacklevel=3)
    return store


def _registry() -> Registry:
    """Return the installed plugins; those that cannot be loaded are warned of."""
    registry = load_plugins()
    for problem in registry.problems:
        warnings.warn(problem, stacklevel=3)
    return registry
