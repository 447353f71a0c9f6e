"""Time of a training step on one GPU, with nothing to wait for."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from sipml_core.model import OpGraph, Phase, op_work
from sipml_core.plugin import GpuModel


def op_times_us(
    graph: OpGraph, gpu: GpuModel, *, launch_us: float = 1.0, minimum_op_us: float = 1.0
) -> NDArray[np.float64]:
    """What each op occupies the GPU for, whole. [ops] [us]

    Parameters
    ----------
    launch_us, minimum_op_us
        As in `sipml_core.model.cluster.Cluster`: paid by every op, and its smallest time. [us]
    """
    times = [gpu.op_time_us(op_work(graph, op)) for op in graph.ops]
    return np.maximum(np.array(times, dtype=np.float64), minimum_op_us) + launch_us


def step_time_us(
    graph: OpGraph,
    gpu: GpuModel,
    *,
    launch_us: float = 1.0,
    minimum_op_us: float = 1.0,
    phases: Iterable[Phase] = tuple(Phase),
) -> float:
    """All ops of `phases`, one after the other. [us]"""
    times = op_times_us(graph, gpu, launch_us=launch_us, minimum_op_us=minimum_op_us)
    wanted = set(phases)
    return float(sum(time for op, time in zip(graph.ops, times, strict=True) if op.phase in wanted))
