"""Which pairs of a job a computation waits for."""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.lowering import Lowering
from sipml_core.model import BARRIER, PairIndex, TaskGraph


def gating_pairs(lowering: Lowering) -> NDArray[np.int64]:
    """Return the pairs with a transfer that feeds a compute task directly, as sorted keys of a `PairIndex`.

    Those of one iteration: with several, gradients gate the next one.

    Examples
    --------
    Two groups of the worked example, on the GPUs 0 to 2 and 3 to 5. y goes from device 0 to the others and
    parts of dy go back; what devices send to their counterparts is gradients, which nothing waits for.

    >>> from sipml_core.testing.worked import lowering
    >>> [(int(key) // 6, int(key) % 6) for key in gating_pairs(lowering(dp=2))]
    [(0, 1), (0, 2), (1, 0), (2, 0), (3, 4), (3, 5), (4, 3), (5, 3)]
    """
    lowering = one_iteration(lowering)
    gpus, gpu_at = lowering.plan.gpus, lowering.gpu_of.reshape(-1)
    tasks = lowering.tasks(lowering.period)
    gating = feeds_compute(tasks)

    # Ends of the gating pairs of the first period, as positions in the job's order [pairs], and how far all
    # are moved on to become those of the other periods. [shifts, 1]
    position = np.argsort(gpu_at)
    src, dst = position[tasks.src[gating]], position[tasks.dst[gating]]
    shift = np.arange(0, gpus, lowering.period * lowering.plan.replica_gpus)[:, np.newaxis]
    index = PairIndex(gpus)
    return np.unique(index.key(gpu_at[(src + shift) % gpus], gpu_at[(dst + shift) % gpus]))


def feeds_compute(tasks: TaskGraph) -> NDArray[np.bool_]:
    """Return which transfers have a compute task, no barrier, among what waits for them. [transfers]"""
    computes = np.zeros(tasks.nodes, dtype=np.bool_)
    computes[: tasks.compute_tasks] = tasks.gpu != BARRIER
    # Node of each entry of `successors`.
    node = np.repeat(np.arange(tasks.nodes), np.diff(tasks.succ_start))
    feeding = np.bincount(node[computes[tasks.successors]], minlength=tasks.nodes) > 0
    return np.asarray(feeding[tasks.compute_tasks :])


def one_iteration(lowering: Lowering) -> Lowering:
    """Return the lowering of a single iteration of the same job."""
    plan = attrs.evolve(lowering.plan, iterations=1)
    return attrs.evolve(lowering, template=attrs.evolve(lowering.template, plan=plan))
