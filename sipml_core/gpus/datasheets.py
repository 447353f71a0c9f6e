"""Data-center GPUs: datasheet rates and the efficiencies fitted for each generation.

Peaks are dense (no sparsity). Sources: NVIDIA V100 datasheet (2018), A100 80 GB datasheet (2021),
H100 and H200 datasheets (2023, 2024).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import attrs

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


class V100(Roofline):
    """V100 SXM2, 32 GB: the paper's GPU. It has no TF32: such a job runs on the FP32 lanes."""

    name = "v100"
    summary = "NVIDIA V100 SXM2 32 GB, 125 TFLOP/s mixed, 900 GB/s"

    @attrs.frozen(kw_only=True)
    class Options:
        """15.7 TFLOP/s FP32, 125 TFLOP/s FP16 on tensor cores, 900 GB/s HBM2."""

        memory: float = memory_option("32 GB")
        bandwidth_gbytes_per_s: float = bandwidth_option(900.0)
        fp32_tflops: float = tflops_option(15.7, "FP32 peak")
        tf32_tflops: float = tflops_option(15.7, "peak in TF32, which the V100 runs as FP32")
        mixed_tflops: float = tflops_option(125.0, "FP16 peak of the tensor cores")
        compute_efficiency: Mapping[str, float] = compute_efficiency_option()
        bandwidth_efficiency: Mapping[str, float] = bandwidth_efficiency_option()
        ramp_us: float = ramp_option(3.0)


class A100(Roofline):
    """A100 SXM, 80 GB."""

    name = "a100"
    summary = "NVIDIA A100 SXM 80 GB, 312 TFLOP/s mixed, 2039 GB/s"
    compute = _SINCE_AMPERE

    @attrs.frozen(kw_only=True)
    class Options:
        """19.5 TFLOP/s FP32, 156 TF32, 312 BF16, 2039 GB/s HBM2e."""

        memory: float = memory_option("80 GB")
        bandwidth_gbytes_per_s: float = bandwidth_option(2039.0)
        fp32_tflops: float = tflops_option(19.5, "FP32 peak")
        tf32_tflops: float = tflops_option(156.0, "TF32 peak of the tensor cores")
        mixed_tflops: float = tflops_option(312.0, "BF16 peak of the tensor cores")
        compute_efficiency: Mapping[str, float] = compute_efficiency_option()
        bandwidth_efficiency: Mapping[str, float] = bandwidth_efficiency_option()
        ramp_us: float = ramp_option(3.0)


class H100(Roofline):
    """H100 SXM, 80 GB; efficiencies of the A100, not calibrated."""

    name = "h100"
    summary = "NVIDIA H100 SXM 80 GB, 989 TFLOP/s mixed, 3350 GB/s (not calibrated)"
    compute = _SINCE_AMPERE

    @attrs.frozen(kw_only=True)
    class Options:
        """67 TFLOP/s FP32, 494.5 TF32, 989 BF16, 3350 GB/s HBM3."""

        memory: float = memory_option("80 GB")
        bandwidth_gbytes_per_s: float = bandwidth_option(3350.0)
        fp32_tflops: float = tflops_option(67.0, "FP32 peak")
        tf32_tflops: float = tflops_option(494.5, "TF32 peak of the tensor cores")
        mixed_tflops: float = tflops_option(989.0, "BF16 peak of the tensor cores")
        compute_efficiency: Mapping[str, float] = compute_efficiency_option()
        bandwidth_efficiency: Mapping[str, float] = bandwidth_efficiency_option()
        ramp_us: float = ramp_option(3.0)


class H200(Roofline):
    """H200 SXM, 141 GB; efficiencies of the A100, not calibrated."""

    name = "h200"
    summary = "NVIDIA H200 SXM 141 GB, 989 TFLOP/s mixed, 4800 GB/s (not calibrated)"
    compute = _SINCE_AMPERE

    @attrs.frozen(kw_only=True)
    class Options:
        """67 TFLOP/s FP32, 494.5 TF32, 989 BF16, 4800 GB/s HBM3e."""

        memory: float = memory_option("141 GB")
        bandwidth_gbytes_per_s: float = bandwidth_option(4800.0)
        fp32_tflops: float = tflops_option(67.0, "FP32 peak")
        tf32_tflops: float = tflops_option(494.5, "TF32 peak of the tensor cores")
        mixed_tflops: float = tflops_option(989.0, "BF16 peak of the tensor cores")
        compute_efficiency: Mapping[str, float] = compute_efficiency_option()
        bandwidth_efficiency: Mapping[str, float] = bandwidth_efficiency_option()
        ramp_us: float = ramp_option(3.0)
