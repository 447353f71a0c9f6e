"""Laws of GPU models."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

import attrs

from sipml_core.errors import ConfigError
from sipml_core.model import PRECISIONS, OpWork, Phase, op_work
from sipml_core.plugin import GpuModel
from sipml_core.testing.jobs import small_workloads
from sipml_core.testing.laws import ComponentConformance, law, require

#: pytest leaves the frames of this file out, so that the law's sentence comes first.
__tracebackhide__ = True


class GpuModelConformance(ComponentConformance):
    """Laws of a GPU model: set `gpu_model`, and its `options` if some are required."""

    gpu_model: ClassVar[type[GpuModel]]

    @property
    def component(self) -> type[Any]:
        return self.gpu_model

    def exercise(self, component: Any) -> None:
        component.op_time_us(next(iter(_works()))[1])

    def timed(self) -> Iterator[tuple[dict[str, str], OpWork, float]]:
        """Time of every op of the bundled workloads that the model does not refuse."""
        gpu, refused = self.make(), set()
        for case, work in _works():
            with law("an op has a time, or is refused with ConfigError", **case):
                try:
                    time_us = gpu.op_time_us(work)
                except ConfigError as refusal:
                    require("\n" not in str(refusal), f"several lines: {refusal}")
                    refused.add(work.precision)
                    continue
            yield case, work, time_us
        with law("some precision is supported", precisions=", ".join(PRECISIONS)):
            require(refused < set(PRECISIONS), "all are refused")

    def test_memory_is_positive_and_finite(self) -> None:
        with law("a GPU has memory", gpu=self.gpu_model.name):
            memory_bytes = self.make().memory_bytes
            require(math.isfinite(memory_bytes) and memory_bytes > 0, f"{memory_bytes} bytes")

    def test_every_op_takes_a_finite_time(self) -> None:
        for case, _, time_us in self.timed():
            with law("times are finite and not negative", **case):
                require(math.isfinite(time_us) and time_us >= 0, f"{time_us} us")

    def test_the_same_op_takes_the_same_time(self) -> None:
        gpu = self.make()
        for case, work, time_us in self.timed():
            with law("a time depends on the op only", **case):
                require(gpu.op_time_us(work) == time_us, f"{time_us} us, then {gpu.op_time_us(work)} us")

    def test_names_matter_only_where_the_model_says_so(self) -> None:
        gpu = self.make()
        for case, work, time_us in self.timed():
            if not gpu.names_matter:
                with law("where names do not matter, an op of another name takes the same time", **case):
                    renamed_us = gpu.op_time_us(attrs.evolve(work, op=f"not {work.op}"))
                    require(renamed_us == time_us, f"{time_us} us, renamed {renamed_us} us")

    def test_more_work_is_never_faster(self) -> None:
        gpu = self.make()
        for case, work, time_us in self.timed():
            with law("twice the work in every respect is not faster", **case):
                double = attrs.evolve(
                    work,
                    flops=2 * work.flops,
                    memory_bytes=2 * work.memory_bytes,
                    output_elements=2 * work.output_elements,
                    samples=2 * work.samples,
                )
                require(
                    gpu.op_time_us(double) >= time_us * (1 - 1e-9), f"{gpu.op_time_us(double)} < {time_us} us"
                )

    def test_kinds_of_op_it_has_not_heard_of(self) -> None:
        for precision in PRECISIONS:
            with law("an unknown kind of op has a time, or is refused with ConfigError", precision=precision):
                work = OpWork(
                    op="strange", kind="strange", phase=Phase.FORWARD, precision=precision,
                    flops=1e9, memory_bytes=1e6, output_elements=1e5, samples=8,
                )  # fmt: skip
                try:
                    time_us = self.make().op_time_us(work)
                except ConfigError:
                    continue
                require(math.isfinite(time_us) and time_us >= 0, f"{time_us} us")


def _works() -> Iterator[tuple[dict[str, str], OpWork]]:
    """Every op of every bundled workload, at every precision."""
    for workload in small_workloads():
        for precision in PRECISIONS:
            graph = workload.graph(8, precision)
            for op in graph.ops:
                case = {"workload": workload.name, "op": op.name, "precision": precision}
                yield case, op_work(graph, op)
