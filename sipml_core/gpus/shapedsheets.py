"""Data-center GPUs whose matrix products go by shape: datasheet rates, and what was fitted for each.

Peaks are dense (no sparsity). Sources: NVIDIA datasheets of V100 (2018), A100 40 GB (2020) and 80 GB (2021),
H100 (2023), H200 (2024), B200 (2025); multiprocessors from the architecture white papers. docs/gpu-models.md
says what each efficiency was fitted to, and what the errors are.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import attrs

from sipml_core.fields import at_least, between, frozen, one_of, option
from sipml_core.gpus.roofline import (
    bandwidth_efficiency_option,
    bandwidth_option,
    compute_efficiency_option,
    memory_option,
    ramp_option,
    tflops_option,
)
from sipml_core.gpus.shaped import ShapedGpu


@frozen(kw_only=True)
class _Sheet:
    """What a datasheet says. Peaks are in TFLOP/s; 0: it has none."""

    memory: str
    gbytes_per_s: float
    fp32: float
    tf32: float
    mixed: float
    fp8: float
    multiprocessors: int


_V100 = _Sheet(
    memory="16 GB", gbytes_per_s=900.0, fp32=15.7, tf32=15.7, mixed=125.0, fp8=0.0, multiprocessors=80
)
_A100_40 = _Sheet(
    memory="40 GB", gbytes_per_s=1555.0, fp32=19.5, tf32=156.0, mixed=312.0, fp8=0.0, multiprocessors=108
)
_A100_80 = attrs.evolve(_A100_40, memory="80 GB", gbytes_per_s=2039.0)
_H100 = _Sheet(
    memory="80 GB", gbytes_per_s=3350.0, fp32=67.0, tf32=494.5, mixed=989.0, fp8=1979.0, multiprocessors=132
)
_H200 = attrs.evolve(_H100, memory="141 GB", gbytes_per_s=4800.0)
_B200 = _Sheet(
    memory="180 GB",
    gbytes_per_s=7700.0,
    fp32=75.0,
    tf32=1125.0,
    mixed=2250.0,
    fp8=4500.0,
    multiprocessors=148,
)


def _options(sheet: _Sheet) -> type[Any]:
    """The options of a GPU, by default as its datasheet says."""

    @frozen(kw_only=True)
    class Options:
        memory: float = memory_option(sheet.memory)
        bandwidth_gbytes_per_s: float = bandwidth_option(sheet.gbytes_per_s)
        fp32_tflops: float = tflops_option(sheet.fp32, "FP32 peak")
        tf32_tflops: float = tflops_option(sheet.tf32, "TF32 peak; that of FP32 where there is none")
        mixed_tflops: float = tflops_option(sheet.mixed, "FP16 or BF16 peak of the tensor cores")
        fp8_tflops: float = option(
            sheet.fp8, doc="FP8 peak; 0: there is none", unit="TFLOP/s", validator=at_least(0)
        )
        multiprocessors: int = option(
            sheet.multiprocessors, doc="tiles that are worked on at a time", validator=between(1, 10_000)
        )
        compute_efficiency: Mapping[str, float] = compute_efficiency_option()
        bandwidth_efficiency: Mapping[str, float] = bandwidth_efficiency_option()
        ramp_us: float = ramp_option(3.0)
        kernels: str = option(
            "fused", validator=one_of("fused", "eager"),
            doc='softmax and loss in one kernel each ("fused"), or in several in fp32, as PyTorch has them '
            '("eager")',
        )  # fmt: skip

    return Options


#: Parts of the memory bandwidth that streaming kernels and norms reach, as on Volta.
_SINCE_AMPERE = MappingProxyType({"other": 0.85, "norm": 0.70})


class V100Sxm2(ShapedGpu):
    """V100 SXM2, 16 GB."""

    name = "v100-16gb"
    summary = "NVIDIA V100 SXM2 16 GB, matrix products by shape"
    compute = MappingProxyType({"matmul": 0.69})
    Options = _options(_V100)


class A100Sxm40(ShapedGpu):
    """A100 SXM, 40 GB: that of 80 GB with its own memory."""

    name = "a100-40gb"
    summary = "NVIDIA A100 SXM 40 GB, matrix products by shape"
    compute = MappingProxyType({"matmul": 0.78, "conv": 0.38})
    bandwidth = _SINCE_AMPERE
    Options = _options(_A100_40)


class A100Sxm80(ShapedGpu):
    """A100 SXM, 80 GB."""

    name = "a100-80gb"
    summary = "NVIDIA A100 SXM 80 GB, matrix products by shape"
    compute = MappingProxyType({"matmul": 0.78, "conv": 0.38})
    bandwidth = _SINCE_AMPERE
    Options = _options(_A100_80)


class H100Sxm(ShapedGpu):
    """H100 SXM, 80 GB."""

    name = "h100-80gb"
    summary = "NVIDIA H100 SXM 80 GB, matrix products by shape"
    compute = MappingProxyType({"matmul": 0.62, "conv": 0.38})
    bandwidth = _SINCE_AMPERE
    Options = _options(_H100)


class H200Sxm(ShapedGpu):
    """H200 SXM, 141 GB: the H100's constants with its own memory, compared with no measurement."""

    name = "h200-141gb"
    summary = "NVIDIA H200 SXM 141 GB, matrix products by shape (the H100's, not calibrated)"
    compute, bandwidth = H100Sxm.compute, H100Sxm.bandwidth
    Options = _options(_H200)


class B200Sxm(ShapedGpu):
    """B200 SXM, 180 GB."""

    name = "b200-180gb"
    summary = "NVIDIA B200 SXM 180 GB, matrix products by shape"
    compute = MappingProxyType({"matmul": 0.45, "conv": 0.38})
    bandwidth = _SINCE_AMPERE
    Options = _options(_B200)
