"""A small GPT in pipeline stages, placed, lowered and run: what laws of training plans are tried on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sipml_core.engine import simulate
from sipml_core.lowering import GroupTemplate, Lowering
from sipml_core.model import (
    Cluster,
    Network,
    Nodes,
    OpWork,
    Placement,
    PlacementLimits,
    Plan,
    TaskBuilder,
    Timeline,
)
from sipml_core.partition import cut_stages, fixed_layout, partition
from sipml_core.placement import Aligned, place_in_stages
from sipml_core.plugin import GpuModel, Workload
from sipml_core.testing.worked import ThreeMicroseconds, switch
from sipml_core.workloads import Gpt


class ByKind(ThreeMicroseconds):
    """A GPU on which an op takes 1 to 5 us by its kind and by sample, and a slice its share."""

    name = "by-kind"

    def op_time_us(self, work: OpWork) -> float:
        """Return a time that is the same for equal layers."""
        return (1.0 + len(work.kind) % 5) * work.fraction * work.samples


def small_gpt(**options: Any) -> Gpt:
    """Return a GPT of 8 layers, or of what `options` say."""
    usual = {"layers": 8, "hidden": 64, "heads": 4, "sequence": 32, "vocabulary": 100}
    return Gpt(Gpt.Options(**{**usual, **options}))


def placed(
    plan: Plan,
    *,
    layout: str = "megatron",
    tolerance: float = 0.1,
    gpu: type[GpuModel] = ByKind,
    workload: Workload | None = None,
) -> Placement:
    """Return one micro-batch of a workload, the small GPT if none is named, on the GPUs of a replica."""
    cluster = Cluster(gpus=plan.gpus, bandwidth_gbps=1.0, minimum_op_us=0.0, launch_us=0.0)
    graph = (workload or small_gpt()).graph(plan.micro_samples, "mixed")
    cuts = fixed_layout(graph, layout) if plan.mp > 1 else None
    balanced = partition(graph, gpu(gpu.Options()), cluster, mp=plan.mp, tau_us=1e-3, layout=cuts)
    time_us = np.maximum.reduceat(balanced.duration_us, balanced.first[:-1])
    part = cut_stages(graph, time_us, plan.model_parts, tolerance)
    return place_in_stages(
        Aligned(Aligned.Options()), balanced, PlacementLimits(devices=plan.mp), part, plan.pp
    )


def lowered(plan: Plan, **placing: Any) -> Lowering:
    """Return what `placed` returns, with GPUs for all replicas."""
    template = GroupTemplate.of(placed(plan, **placing), plan)
    return Lowering.of(template, Cluster(gpus=plan.gpus, bandwidth_gbps=1.0))


def run_iteration(lowering: Lowering, gbps: float = 1e9, kernel: str = "c") -> tuple[Timeline, Nodes]:
    """Return the timeline of all GPUs on a switch, and nodes. [micro-batches, tasks, replicas]"""
    builder = TaskBuilder(lowering.plan.gpus, ("work", "sync"))
    nodes, mark = lowering.iteration(builder, lowering.plan.replicas).add(0)
    graph = builder.build(mark)
    return simulate(graph, Network.of(switch(graph.gpus, gbps), graph), kernel=kernel), nodes


def pass_times(lowering: Lowering) -> NDArray[np.float64]:
    """Return what each kind of pass over each part takes on one device of its stage. [rows] [us]"""
    template = lowering.template
    group, row = template.group, template.passes.row
    first = group.device % lowering.plan.mp == 0
    chosen = first & (row >= 0)
    took = np.bincount(row[chosen], group.duration_us[chosen], len(template.passes.sinks))
    return took.astype(np.float64)
