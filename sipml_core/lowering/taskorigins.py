"""Where tasks and transfers of a job come from: op, pass and micro-batch; which sum of gradients."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import SipmlError
from sipml_core.fields import frozen
from sipml_core.lowering.joblowering import Lowering
from sipml_core.model import TaskGraph

#: Rows of `PassTasks` for each part of the model: forward, backward, gradients of parameters.
_KINDS = 3


@frozen(kw_only=True, eq=False)
class TaskOrigins:
    """Of each compute task, -1 where it has none: barriers, and what shared states add. [tasks]"""

    #: Index into `op_names`.
    op: NDArray[np.int32]
    op_names: tuple[str, ...]
    micro_batch: NDArray[np.int32]
    #: 0 forward, 1 backward, 2 gradients of parameters, 3 optimizer.
    pass_kind: NDArray[np.int32]
    #: Part of the model; that of an optimizer task is -1.
    part: NDArray[np.int32]
    #: Bucket of gradients whose sum each transfer is part of; -1: it carries activations. [transfers]
    bucket: NDArray[np.int32]


def task_origins(lowering: Lowering, tasks: TaskGraph, groups: int) -> TaskOrigins:
    """Return the origins of ``lowering.tasks(groups)``, in the order in which it adds them.

    In each iteration first come the passes of all micro-batches but the last, [micro-batches - 1, passes'
    tasks, groups], then the last with the optimizer, [all tasks, groups], then whatever else there is.

    Examples
    --------
    Two groups of the worked example: twelve tasks each, the last four of the optimizer.

    >>> from sipml_core.testing.worked import lowering
    >>> job = lowering(dp=2)
    >>> tasks = job.tasks()
    >>> found = task_origins(job, tasks, 2)
    >>> found.pass_kind[:24:2].tolist()
    [0, 0, 0, 0, 1, 1, 1, 1, 3, 3, 3, 3]
    >>> set(found.op[24:].tolist()), set(found.micro_batch[:24].tolist())
    ({-1}, {0})
    >>> list(zip(tasks.src.tolist(), found.bucket.tolist()))[6:11]
    [(2, -1), (5, -1), (1, 0), (4, 0), (2, 1)]
    """
    plan, template = lowering.plan, lowering.template
    row, count = template.passes.row, len(template.group.subop)
    work = np.flatnonzero(row >= 0)
    ahead = plan.micro_batches - 1

    # Task of the template and micro-batch of each task of one iteration, then of all. [tasks]
    of_last = np.repeat(np.arange(count), groups)
    of_ahead = np.repeat(np.tile(work, ahead), groups)
    batch_ahead = np.repeat(np.arange(ahead), len(work) * groups)
    each = tasks.compute_tasks // plan.iterations
    known = len(of_ahead) + len(of_last)
    columns = np.full((plan.iterations, each), -1, dtype=np.int32)
    batches = np.full((plan.iterations, each), -1, dtype=np.int32)
    columns[:, :known] = np.concatenate([of_ahead, of_last])
    batches[:, :known] = np.concatenate([batch_ahead, np.full(len(of_last), ahead)])
    column, micro_batch = columns.reshape(-1), batches.reshape(-1)
    _refuse_others(lowering, tasks, column)

    # Sums of gradients have the last priorities of an iteration, one for each bucket.
    buckets = len(template.buckets)
    priorities = template.priorities
    bucket = tasks.priority[tasks.compute_tasks :] % priorities - (priorities - buckets)

    kinds = np.where(row < 0, _KINDS, row % _KINDS).astype(np.int32)
    parts = np.where(row < 0, -1, row // _KINDS).astype(np.int32)
    there = column >= 0
    return TaskOrigins(
        op=np.where(there, template.group.op[column], -1).astype(np.int32),
        op_names=tuple(op.name for op in template.group.graph.graph.ops),
        micro_batch=micro_batch,
        pass_kind=np.where(there, kinds[column], -1).astype(np.int32),
        part=np.where(there, parts[column], -1).astype(np.int32),
        bucket=np.maximum(bucket, -1).astype(np.int32),
    )


def _refuse_others(lowering: Lowering, tasks: TaskGraph, column: NDArray[np.int32]) -> None:
    """`SipmlError` where tasks are not on the devices that they should come from."""
    device = np.empty(lowering.plan.gpus, dtype=np.int32)
    device[lowering.gpu_of] = np.arange(lowering.plan.replica_gpus)
    there = np.flatnonzero(column >= 0)
    gpu = tasks.gpu[there]
    if (gpu < 0).any() or (device[gpu] != lowering.template.group.device[column[there]]).any():
        raise SipmlError("the tasks are not those of this lowering")
