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
from sipml_core.experiment import Experiment, open_experiment
from sipml_core.model import SILENT, CircuitPlan, Progress, Result, TrafficMatrix
from sipml_core.plugin import Registry
from sipml_core.plugin import load as load_plugins
from sipml_core.scheduling import read_matrix
from sipml_core.searching import AnswerCache, SearchResult, default_cache_folder
from sipml_core.searching import search as search_experiments

#: The name of an experiment file, or an experiment.
Source = str | os.PathLike[str] | Experiment


def load(path: str | os.PathLike[str], *, set: Mapping[str, Any] | None = None) -> Experiment:
    """Return the experiment of a TOML file, every value checked.

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
        The name of a TOML file, or an `Experiment`.
    set
        As in `load`; only with the name of a file.
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
    cache: str | os.PathLike[str] | None = None,
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
    cache
        Folder in which answers are looked up and kept; left out: that of the command ``search``.
    """
    opened = open_experiment(experiment, _registry(), set=set)
    folder = default_cache_folder() if cache is None else Path(cache)
    (result,) = search_experiments([opened], jobs=jobs, cache=AnswerCache(folder), progress=progress)
    return result


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


def _registry() -> Registry:
    """Return the installed plugins; those that cannot be loaded are warned of."""
    registry = load_plugins()
    for problem in registry.problems:
        warnings.warn(problem, stacklevel=3)
    return registry
