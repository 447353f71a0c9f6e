"""A roofline that saturates: time of a kernel from its FLOPs and bytes.

    time = max(flops / (peak x efficiency), bytes / (bandwidth x efficiency)) + ramp

The last term is Hockney's half-performance length (Hockney & Jesshope, "Parallel Computers 2",
1988, section 1.3): a kernel of work w runs at rate r / (1 + w_half / w), where w_half = r x ramp is
the work at which half the rate r is reached. It stands for filling and draining the
multiprocessors, including the last, partial wave of thread blocks.

Bytes are those of an op's operands, each once (`sipml_core.model.opwork`). A kernel that passes
over its operands more than once therefore has a lower efficiency than the memory has.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from sipml_core.errors import ConfigError
from sipml_core.fields import at_least, option, parse_bytes, positive
from sipml_core.model import OpWork
from sipml_core.plugin import GpuModel

#: Kinds whose FLOPs run on the matrix units; all others run on the FP32 lanes.
MATRIX_KINDS = frozenset({"conv", "matmul", "attention"})

#: Fractions of the peaks that kernels reach, fitted as docs/gpu-models.md says. Matrix kinds at
#: mixed precision by kind, in "fp32" and "tf32" together; "vector": all other kinds, never the bound.
COMPUTE_EFFICIENCY: Mapping[str, float] = MappingProxyType(
    {"conv": 0.45, "matmul": 0.56, "attention": 0.45, "tf32": 0.25, "fp32": 0.87, "vector": 0.50}
)
#: Fractions of the memory bandwidth. Normalisation passes over its input twice; "other": all others.
BANDWIDTH_EFFICIENCY: Mapping[str, float] = MappingProxyType({"norm": 0.70, "other": 0.87})


def _efficiencies(known: Mapping[str, float]) -> Any:
    """Validator: a table of known kinds with fractions above 0 and at most 1."""

    def check(_: Any, attribute: Any, value: Mapping[str, float]) -> None:
        for kind, fraction in value.items():
            if kind not in known:
                raise ConfigError(f"{attribute.name}.{kind} is no kind of kernel; known: {', '.join(known)}")
            if not 0 < fraction <= 1:
                raise ConfigError(f"{attribute.name}.{kind} must be above 0 and at most 1, got {fraction!r}")

    return check


def compute_efficiency_option() -> Any:
    """Overrides of a GPU's compute efficiencies, by kind."""
    return option(
        {},
        doc=f"fraction of the peak, by kind: {', '.join(COMPUTE_EFFICIENCY)}",
        validator=_efficiencies(COMPUTE_EFFICIENCY),
    )


def bandwidth_efficiency_option() -> Any:
    """Overrides of a GPU's bandwidth efficiencies, by kind."""
    return option(
        {},
        doc=f"fraction of the memory bandwidth, by kind: {', '.join(BANDWIDTH_EFFICIENCY)}",
        validator=_efficiencies(BANDWIDTH_EFFICIENCY),
    )


def tflops_option(default: float, doc: str) -> Any:
    """A datasheet peak."""
    return option(default, doc=doc, unit="TFLOP/s", validator=positive)


def memory_option(default: str) -> Any:
    """Device memory."""
    return option(default, doc="device memory", unit="bytes", validator=positive, converter=parse_bytes)


def bandwidth_option(default: float) -> Any:
    """Bandwidth of the device memory."""
    return option(default, doc="bandwidth of the device memory", unit="GB/s", validator=positive)


def ramp_option(default: float) -> Any:
    """Time in which a kernel fills and drains the GPU."""
    return option(default, doc="time to fill and drain the GPU", unit="us", validator=at_least(0))


class Roofline(GpuModel):
    """A GPU of datasheet peaks; a subclass brings `Options` with these fields.

    ``memory``, ``bandwidth_gbytes_per_s``, ``fp32_tflops``, ``tf32_tflops``, ``mixed_tflops``,
    ``compute_efficiency``, ``bandwidth_efficiency``, ``ramp_us``.
    """

    names_matter = False

    #: Where this GPU differs from the family.
    compute: Mapping[str, float] = MappingProxyType({})
    bandwidth: Mapping[str, float] = MappingProxyType({})

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._compute = {**COMPUTE_EFFICIENCY, **self.compute, **options.compute_efficiency}
        self._bandwidth = {**BANDWIDTH_EFFICIENCY, **self.bandwidth, **options.bandwidth_efficiency}
        self._peak_tflops = {
            "fp32": options.fp32_tflops,
            "tf32": options.tf32_tflops,
            "mixed": options.mixed_tflops,
        }

    @property
    def memory_bytes(self) -> float:
        """Device memory. [bytes]"""
        return float(self.options.memory)

    def op_time_us(self, work: OpWork) -> float:
        """See `GpuModel.op_time_us` and the module's law."""
        return float(max(self.compute_us(work), self.memory_us(work)) + self.options.ramp_us)

    def compute_us(self, work: OpWork) -> float:
        """The FLOPs alone, at the kind's share of the peak. [us]"""
        tflops = self.options.fp32_tflops
        efficiency = self._compute["vector"]
        if work.kind in MATRIX_KINDS:
            tflops = self._tflops(work)
            efficiency = self._compute[self._units(work)]
        return float(work.flops / (tflops * 1e6 * efficiency))

    def peak_tflops(self, precision: str) -> float:
        """Return the data sheet's peak of matrix units; `ConfigError` if there is none. [TFLOP/s]"""
        try:
            return float(self._peak_tflops[precision])
        except KeyError:
            known = ", ".join(self._peak_tflops)
            raise ConfigError(f"gpu.precision: {self.name!r} has no {precision!r}; it has {known}") from None

    def _tflops(self, work: OpWork) -> float:
        """Return the peak of a matrix kind at the job's precision. [TFLOP/s]"""
        return self.peak_tflops(work.precision)

    def _units(self, work: OpWork) -> str:
        """Key of the efficiency of a matrix kind."""
        if work.precision == "tf32" and self.options.tf32_tflops == self.options.fp32_tflops:
            return "fp32"
        return work.kind if work.precision == "mixed" else work.precision

    def memory_us(self, work: OpWork) -> float:
        """The bytes alone, at the kind's share of the memory bandwidth. [us]"""
        efficiency = self._bandwidth.get(work.kind, self._bandwidth["other"])
        return float(work.memory_bytes / (self.options.bandwidth_gbytes_per_s * 1e3 * efficiency))
