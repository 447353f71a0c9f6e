"""Measured throughput of single GPUs against the GPU models: `python benchmarks/gpu_calibration.py`.

Prints two markdown tables: the rows that the efficiencies were fitted on, and rows held out.
"""

from __future__ import annotations

from functools import cache

import attrs

from sipml_core.gpus import A100, V100, op_times_us
from sipml_core.model import Phase
from sipml_core.plugin import GpuModel, Workload
from sipml_core.workloads import Gpt, ResNet50

#: One batch of one image, V100 FP32 inference in eager PyTorch (NVIDIA DeepLearningExamples,
#: ResNet50v1.5): bound by the host, which launches kernels. [us]
BATCH_1_LATENCY_US = 10_370.0


@attrs.frozen(kw_only=True)
class Measurement:
    """One published throughput. [samples/s]"""

    what: str
    gpu: GpuModel
    workload: Workload
    precision: str
    batch: int
    #: Every figure published for this case (two frameworks: two figures).
    measured: tuple[float, ...]
    inference: bool = False
    #: The forward pass of the layers runs again in the backward pass.
    recompute: bool = False

    @property
    def predicted(self) -> float:
        """Samples per second by the models. [samples/s]"""
        graph = self.workload.graph(self.batch, self.precision)
        times = op_times_us(graph, self.gpu)
        used = [
            (1 if not self.inference or op.phase is Phase.FORWARD else 0)
            + (1 if self.recompute and op.phase is Phase.FORWARD and op.name.startswith("layer") else 0)
            for op in graph.ops
        ]
        gpu_us = float(times @ used)
        return self.batch * 1e6 / max(gpu_us, dispatch_us() * sum(used))

    @property
    def error(self) -> float:
        """Signed, relative to the nearest figure; 0 between two figures."""
        low, high = min(self.measured), max(self.measured)
        nearest = min(max(self.predicted, low), high)
        return self.predicted / nearest - 1.0


@cache
def dispatch_us() -> float:
    """Host time for one op of our graphs. The host runs ahead: a step takes the longer of the two."""
    graph = ResNet50(ResNet50.Options()).graph(1, "fp32")
    return BATCH_1_LATENCY_US / sum(op.phase is Phase.FORWARD for op in graph.ops)


def v100() -> V100:
    return V100(V100.Options())


def resnet(
    gpu: GpuModel, precision: str, batch: int, measured: float, inference: bool = False
) -> Measurement:
    """A row of NVIDIA DeepLearningExamples, PyTorch ResNet50v1.5."""
    return Measurement(
        what=f"ResNet-50 {'inference' if inference else 'training'}",
        gpu=gpu,
        workload=ResNet50(ResNet50.Options()),
        precision=precision,
        batch=batch,
        measured=(measured,),
        inference=inference,
    )


def gpt(hidden: int, layers: int, heads: int, batch: int, *measured: float) -> Measurement:
    """A row of Oneflow-Inc/DLPerf, GPT report: Megatron-LM and OneFlow, activations recomputed."""
    options = Gpt.Options(hidden=hidden, layers=layers, heads=heads, sequence=2048, vocabulary=51200)
    return Measurement(
        what=f"GPT {hidden} x {layers} training",
        gpu=v100(),
        workload=Gpt(options),
        precision="mixed",
        batch=batch,
        measured=measured,
        recompute=True,
    )


def fitted() -> list[Measurement]:
    """Rows the efficiencies were fitted on."""
    a100 = A100(A100.Options())
    return [
        resnet(v100(), "fp32", 128, 356.0),
        resnet(v100(), "mixed", 256, 1156.0),
        resnet(a100, "tf32", 256, 938.0),
        resnet(a100, "mixed", 256, 2470.0),
        resnet(v100(), "fp32", 1, 96.0, inference=True),
        resnet(v100(), "fp32", 16, 1023.0, inference=True),
        resnet(v100(), "fp32", 256, 1261.0, inference=True),
        gpt(1536, 16, 16, 2, 4.31, 4.92),
        gpt(768, 12, 12, 8, 13.09, 15.23),
    ]


def held_out() -> list[Measurement]:
    """Rows of the same report that the fit does not use."""
    fp32 = [(2, 196.0), (4, 386.0), (8, 709.0), (32, 1127.0), (64, 1200.0), (128, 1229.0)]
    mixed = [(1, 78.0), (2, 154.0), (4, 300.0), (8, 595.0), (16, 1178.0), (32, 2146.0)]
    mixed += [(64, 2984.0), (128, 3249.0), (256, 3382.0)]
    return [
        *(resnet(v100(), "fp32", batch, rate, inference=True) for batch, rate in fp32),
        *(resnet(v100(), "mixed", batch, rate, inference=True) for batch, rate in mixed),
    ]


def table(rows: list[Measurement]) -> str:
    """Markdown."""
    lines = [
        "| case | GPU | precision | batch | measured /s | model /s | error |",
        "|---|---|---|--:|--:|--:|--:|",
    ]
    for row in rows:
        figures = " - ".join(f"{figure:g}" for figure in row.measured)
        lines.append(
            f"| {row.what} | {row.gpu.name} | {row.precision} | {row.batch} | {figures} "
            f"| {row.predicted:.4g} | {row.error:+.1%} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print("Fitted:\n")
    print(table(fitted()))
    print("\nHeld out:\n")
    print(table(held_out()))
