"""What the core itself offers, registered as any plugin is.

In: nothing. Out: the hooks of the plugin `core`.
Imports the rooms whose classes it offers.
"""

from __future__ import annotations

from collections.abc import Iterable

from sipml_core.allocation import ALLOCATORS
from sipml_core.collectives import ALL_REDUCES, EXCHANGES
from sipml_core.communication import LIBRARIES
from sipml_core.estimators import ESTIMATORS
from sipml_core.gpus import GPU_MODELS
from sipml_core.placement import PLACERS
from sipml_core.plugin import (
    Allocator,
    AllReduce,
    Communication,
    Estimator,
    Exchange,
    GpuModel,
    Placer,
    Workload,
    hookimpl,
)
from sipml_core.workloads import WORKLOADS


@hookimpl
def sipml_workloads() -> Iterable[type[Workload]]:
    return WORKLOADS


@hookimpl
def sipml_gpu_models() -> Iterable[type[GpuModel]]:
    return GPU_MODELS


@hookimpl
def sipml_placers() -> Iterable[type[Placer]]:
    return PLACERS


@hookimpl
def sipml_estimators() -> Iterable[type[Estimator]]:
    return ESTIMATORS


@hookimpl
def sipml_exchanges() -> Iterable[type[Exchange]]:
    return EXCHANGES


@hookimpl
def sipml_all_reduces() -> Iterable[type[AllReduce]]:
    return ALL_REDUCES


@hookimpl
def sipml_communication() -> Iterable[type[Communication]]:
    return LIBRARIES


@hookimpl
def sipml_allocators() -> Iterable[type[Allocator]]:
    return ALLOCATORS
