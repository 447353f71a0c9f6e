"""What a task of the next iteration waits for in this one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from sipml_core.lowering.grouptasks import GroupTasks, Indices, is_phase, unique_pairs
from sipml_core.model import Op, OpGraph, Phase, Role


def next_iteration(group: GroupTasks) -> tuple[Indices, Indices]:
    """Return tasks of one iteration, and tasks of the next one that wait for them. [pairs], [pairs]

    A forward sub-op waits for the optimizer sub-ops of its parameters on its device (for all of
    them if none is there). A task that waits for nothing waits for the last task of its device
    before the optimizer's.
    """
    before, after = [np.empty(0, dtype=np.int32)], [np.empty(0, dtype=np.int32)]
    for reader, updates in _readers(group):
        together = group.device[reader][:, None] == group.device[updates][None]
        together |= ~together.any(axis=1, keepdims=True)
        rows, columns = np.nonzero(together)
        before.append(updates[columns])
        after.append(reader[rows])
    free_before, free_after = _free(group, np.concatenate(after))
    return unique_pairs(np.concatenate([*before, free_before]), np.concatenate([*after, free_after]))


def _readers(group: GroupTasks) -> Iterator[tuple[Indices, Indices]]:
    """Return sub-ops of each forward op with parameters, and the optimizer sub-ops that update these."""
    graph = group.graph.graph
    first = group.graph.first
    updates: dict[str, list[int]] = defaultdict(list)
    for index, op in enumerate(graph.ops):
        if op.phase is Phase.OPTIMIZER:
            for parameter in _parameters(graph, op):
                updates[parameter].append(index)
    for index, op in enumerate(graph.ops):
        updating = {u for parameter in _parameters(graph, op) for u in updates[parameter]}
        if op.phase is Phase.FORWARD and updating:
            subops = [np.arange(first[u], first[u + 1], dtype=np.int32) for u in sorted(updating)]
            yield np.arange(first[index], first[index + 1], dtype=np.int32), np.concatenate(subops)


def _parameters(graph: OpGraph, op: Op) -> set[str]:
    """Return parameters that the op reads, itself or as gradients."""
    tensors = (graph.tensor[operand.tensor] for operand in op.reads)
    return {t.parameter or t.name for t in tensors if t.role in (Role.PARAMETER, Role.GRADIENT)}


def _free(group: GroupTasks, waiting: Indices) -> tuple[Indices, Indices]:
    """Return the last task before the optimizer's on each device, and those there that wait for nothing."""
    tasks = np.arange(len(group.subop), dtype=np.int32)
    waits = (group.edge_dst, group.gate_after, group.graph.shard_subop, waiting)
    is_free = np.ones(len(tasks), dtype=np.bool_)
    is_free[np.concatenate(waits)] = False
    free = tasks[is_free]
    work = tasks[~is_phase(group.graph, Phase.OPTIMIZER)[group.subop]]
    work = work[np.argsort(group.position[work])]
    last = np.full(group.placement.devices, -1, dtype=np.int32)
    last[group.device[work]] = work
    before = last[group.device[free]]
    return before[before >= 0], free[before >= 0]
