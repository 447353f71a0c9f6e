"""What the core itself offers, registered as any plugin is."""

from __future__ import annotations

from collections.abc import Iterable

from sipml_core.estimators import ESTIMATORS
from sipml_core.gpus import GPU_MODELS
from sipml_core.placement import PLACERS
from sipml_core.plugin import Estimator, GpuModel, Placer, Workload, hookimpl
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
