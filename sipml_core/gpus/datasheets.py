"""Data-center GPUs: datasheet rates and the efficiencies fitted for each generation.

Peaks are dense (no sparsity). Sources: NVIDIA V100 datasheet (2018), A100 80 GB datasheet (2021),
H100 and H200 datasheets (2023, 2024).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from sipml_core.fields import frozen
from sipml_core.gpus.roofline import (
    Roofline,
    bandwidth_efficiency_option,
    bandwidth_option,
    compute_efficiency_option,
    memory_option,
    ramp_option,
    tflops_option,
)

#: Ampere and later reach a smaller share of a peak that grew faster than caches and memory: 2.5
#: times Volta's FLOP/s with 2.3 times its bandwidth. Fitted on A100, taken over for Hopper.
_SINCE_AMPERE = MappingProxyType({"conv": 0.38})


@frozen(kw_only=True)
class _Sheet:
    """What a datasheet says. Peaks are in TFLOP/s."""

    memory: str
    gbytes_per_s: float
    fp32: float
    tf32: float
    mixed: float


# fmt: off
_V100 = _Sheet(memory= "32 GB", gbytes_per_s= 900.0, fp32=15.7, tf32= 15.7, mixed=125.0)  # HBM2
_A100 = _Sheet(memory= "80 GB", gbytes_per_s=2039.0, fp32=19.5, tf32=156.0, mixed=312.0)  # HBM2e
_H100 = _Sheet(memory= "80 GB", gbytes_per_s=3350.0, fp32=67.0, tf32=494.5, mixed=989.0)  # HBM3
_H200 = _Sheet(memory="141 GB", gbytes_per_s=4800.0, fp32=67.0, tf32=494.5, mixed=989.0)  # HBM3e
# fmt: on


def _options(
    sheet: _Sheet,
    tf32: str = "TF32 peak of the tensor cores",
    mixed: str = "BF16 peak of the tensor cores",
) -> type[Any]:
    """The options of a GPU, by default as its datasheet says; `tf32` and `mixed` describe those peaks."""

    @frozen(kw_only=True)
    class Options:
        memory: float = memory_option(sheet.memory)
        bandwidth_gbytes_per_s: float = bandwidth_option(sheet.gbytes_per_s)
        fp32_tflops: float = tflops_option(sheet.fp32, "FP32 peak")
        tf32_tflops: float = tflops_option(sheet.tf32, tf32)
        mixed_tflops: float = tflops_option(sheet.mixed, mixed)
        compute_efficiency: Mapping[str, float] = compute_efficiency_option()
        bandwidth_efficiency: Mapping[str, float] = bandwidth_efficiency_option()
        ramp_us: float = ramp_option(3.0)

    return Options


class V100(Roofline):
    """V100 SXM2, 32 GB: the paper's GPU. It has no TF32: such a job runs on the FP32 lanes."""

    name = "v100"
    summary = "NVIDIA V100 SXM2 32 GB, 125 TFLOP/s mixed, 900 GB/s"
    Options = _options(
        _V100, tf32="peak in TF32, which the V100 runs as FP32", mixed="FP16 peak of the tensor cores"
    )


class A100(Roofline):
    """A100 SXM, 80 GB."""

    name = "a100"
    summary = "NVIDIA A100 SXM 80 GB, 312 TFLOP/s mixed, 2039 GB/s"
    compute = _SINCE_AMPERE
    Options = _options(_A100)


class H100(Roofline):
    """H100 SXM, 80 GB; efficiencies of the A100, not calibrated."""

    name = "h100"
    summary = "NVIDIA H100 SXM 80 GB, 989 TFLOP/s mixed, 3350 GB/s (not calibrated)"
    compute = _SINCE_AMPERE
    Options = _options(_H100)


class H200(Roofline):
    """H200 SXM, 141 GB; efficiencies of the A100, not calibrated."""

    name = "h200"
    summary = "NVIDIA H200 SXM 141 GB, 989 TFLOP/s mixed, 4800 GB/s (not calibrated)"
    compute = _SINCE_AMPERE
    Options = _options(_H200)
