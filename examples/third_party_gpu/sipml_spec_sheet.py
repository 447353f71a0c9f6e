"""A GPU from three numbers of its data sheet."""

import attrs

from sipml_core.fields import between, option, parse_bytes, positive
from sipml_core.plugin import GpuModel, hookimpl

SIPML_API = 2


class SpecSheet(GpuModel):
    """Every kernel takes the longer of its arithmetic and its memory traffic, at one efficiency."""

    name = "spec-sheet"
    summary = "a GPU from its data sheet: TFLOP/s, memory bandwidth, memory size"

    @attrs.frozen(kw_only=True)
    class Options:
        teraflops: float = option(doc="peak arithmetic", unit="TFLOP/s", validator=positive)
        memory_gbytes_per_s: float = option(doc="peak memory bandwidth", unit="GB/s", validator=positive)
        memory: float = option(doc="device memory", unit="bytes", converter=parse_bytes, validator=positive)
        efficiency: float = option(
            0.5, doc="share of both peaks that kernels reach", validator=between(0.001, 1)
        )

    @property
    def memory_bytes(self):
        return self.options.memory

    def op_time_us(self, work):
        arithmetic_us = work.flops / (self.options.teraflops * 1e6)
        traffic_us = work.memory_bytes / (self.options.memory_gbytes_per_s * 1e3)
        return max(arithmetic_us, traffic_us) / self.options.efficiency


@hookimpl
def sipml_gpu_models():
    return [SpecSheet]
