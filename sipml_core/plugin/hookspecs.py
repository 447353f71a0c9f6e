"""Every hook of sipml, in the order they are called."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from sipml_core.model import Result
    from sipml_core.plugin.deferred import Deferred
    from sipml_core.plugin.interfaces import (
        Allocator,
        AllReduce,
        Communication,
        Estimator,
        Exchange,
        GpuModel,
        Placer,
        Scheduler,
        Topology,
        Workload,
    )

#: Entry-point group, and prefix of every hook.
PROJECT = "sipml"

hookspec = pluggy.HookspecMarker(PROJECT)
#: Marks a function of a plugin as one of the hooks.
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def sipml_workloads() -> Iterable[type[Workload] | Deferred]:  # type: ignore[empty-body]
    """Models to train that this plugin offers.

    Called once, when plugins load. Names must be unique over all plugins;
    a clash stops the program with both plugins named.
    """


@hookspec
def sipml_gpu_models() -> Iterable[type[GpuModel] | Deferred]:  # type: ignore[empty-body]
    """GPUs that this plugin offers. Called once, when plugins load; names must be unique."""


@hookspec
def sipml_placers() -> Iterable[type[Placer] | Deferred]:  # type: ignore[empty-body]
    """Placement algorithms that this plugin offers. Called once, when plugins load; names must be unique."""


@hookspec
def sipml_topologies() -> Iterable[type[Topology] | Deferred]:  # type: ignore[empty-body]
    """Interconnects that this plugin offers. Called once, when plugins load; names must be unique."""


@hookspec
def sipml_schedulers() -> Iterable[type[Scheduler] | Deferred]:  # type: ignore[empty-body]
    """Circuit schedulers that this plugin offers. Called once, when plugins load; names must be unique."""


@hookspec
def sipml_estimators() -> Iterable[type[Estimator] | Deferred]:  # type: ignore[empty-body]
    """Traffic estimators that this plugin offers. Called once, when plugins load; names must be unique."""


@hookspec
def sipml_exchanges() -> Iterable[type[Exchange] | Deferred]:  # type: ignore[empty-body]
    """Exchanges inside groups that this plugin offers. Called once, when plugins load; names are unique."""


@hookspec
def sipml_all_reduces() -> Iterable[type[AllReduce] | Deferred]:  # type: ignore[empty-body]
    """All-reduces over replicas that this plugin offers. Called once, when plugins load; names are unique."""


@hookspec
def sipml_communication() -> Iterable[type[Communication] | Deferred]:  # type: ignore[empty-body]
    """Communication libraries that this plugin offers. Called once, when plugins load; names are unique."""


@hookspec
def sipml_allocators() -> Iterable[type[Allocator] | Deferred]:  # type: ignore[empty-body]
    """Allocations of GPUs to jobs that this plugin offers. Called once, when plugins load."""


@hookspec
def sipml_run_started(experiment: Any) -> None:
    """A checked `sipml_core.experiment.Experiment` is about to run.

    Every plugin is called; return values are ignored. One that raises is named in a warning and changes
    nothing.
    """


@hookspec
def sipml_run_finished(result: Result) -> None:
    """An experiment has run, and its files are written.

    `result.timelines` has when everything ran, for each of `result.cases`. Every plugin is called; return
    values are ignored. One that raises is named in a warning and changes nothing.
    """
