"""What the core itself offers, registered as any plugin is."""

from __future__ import annotations

from collections.abc import Iterable

from sipml_core.gpus import GPU_MODELS
from sipml_core.hookspecs import hookimpl
from sipml_core.interfaces import GpuModel, Placer, Workload
from sipml_core.parallel.placers import PLACERS
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
