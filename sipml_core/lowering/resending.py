"""Gathered inputs that are not kept: each device keeps its shard, and sends it again for the backward pass.

So does sequence parallelism (Korthikanti et al. 2022, section 4.2.2): what a group gathers before a product
is dropped after the forward pass and gathered again going backward, beside the first gradient of the product.
"""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.lowering.grouptasks import GroupTasks, Indices, group_tasks, is_phase, makes_weights_only
from sipml_core.lowering.schedules import parts_in_flight
from sipml_core.model import Phase, Placement, Plan


def replica_tasks(placement: Placement, plan: Plan) -> GroupTasks:
    """Return the tasks of one replica under a plan: the same whatever its exchange and its all-reduce."""
    late_weights = plan.schedule == "zb-h1"
    tasks = group_tasks(
        placement,
        recompute=plan.recompute,
        in_flight=parts_in_flight(plan),
        late_weights=late_weights,
    )
    return tasks if plan.keep_gathered else gathered_again(tasks, late_weights=late_weights)


def gathered_again(tasks: GroupTasks, *, late_weights: bool = False) -> GroupTasks:
    """Return the same tasks, and tasks without work that send again what is read forward and backward.

    That is what a device received for its forward tasks, from another of its stage that did not duplicate it.
    Sending starts when the backward pass has come to the ops that read it, on the sender. `late_weights`:
    gradients of parameters are made in a later pass, which sending does not wait for.

    Examples
    --------
    In the worked example y goes to devices 1 and 2, where g (tasks 2, 3) and g' (tasks 5, 6) read it. Task 12
    on device 0, before g' there (task 4), sends it again. As g' is where the backward pass begins, nothing of
    it is to be waited for.

    >>> from sipml_core.lowering.grouptasks import group_tasks
    >>> from sipml_core.testing.worked import placed
    >>> found = gathered_again(group_tasks(placed(), recompute="none"))
    >>> found.resends, int(found.device[12]), float(found.duration_us[12]), found.position.tolist()
    (1, 0, 0.0, [0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 4])
    >>> list(zip(found.edge_src.tolist(), found.edge_dst.tolist()))[4:6]
    [(12, 5), (12, 6)]
    >>> int(found.edge_src[-1]), int(found.edge_dst[-1]), int(found.edge_tensor[-1])
    (0, 12, 2)
    """
    again = np.flatnonzero(_received_twice(tasks))
    if not len(again):
        return tasks
    src, tensor = tasks.edge_src[again], tasks.edge_tensor[again]

    # One task for each tensor of each maker. `of`: the number of it for each edge. [edges sent again]
    key = src.astype(np.int64) * len(tasks.graph.graph.tensors) + tensor
    _, first, of = np.unique(key, return_index=True, return_inverse=True)
    number = (len(tasks.subop) + of.reshape(-1)).astype(np.int32)
    maker = src[first]
    before = _first_back(tasks, tasks.edge_dst[again], of.reshape(-1), len(first))
    gate = _last_back(tasks, maker, before, late_weights=late_weights)

    edge_src = tasks.edge_src.copy()
    edge_src[again] = number
    gated = np.flatnonzero(gate >= 0)
    sends = np.arange(len(tasks.subop), len(tasks.subop) + len(first), dtype=np.int32)
    return attrs.evolve(
        tasks,
        subop=np.concatenate([tasks.subop, tasks.subop[maker]]),
        device=np.concatenate([tasks.device, tasks.device[maker]]),
        position=_inserted(tasks.position, before),
        edge_src=np.concatenate([edge_src, src]),
        edge_dst=np.concatenate([tasks.edge_dst, number]),
        edge_tensor=np.concatenate([tasks.edge_tensor, tensor]),
        edge_lo=np.concatenate([tasks.edge_lo, tasks.edge_lo[again]]),
        edge_hi=np.concatenate([tasks.edge_hi, tasks.edge_hi[again]]),
        gate_before=np.concatenate([tasks.gate_before, gate[gated]]),
        gate_after=np.concatenate([tasks.gate_after, sends[gated]]),
        resends=len(first),
    )


def _received_twice(tasks: GroupTasks) -> NDArray[np.bool_]:
    """Return edges into backward tasks of what their device received for forward tasks, see above. [edges]"""
    graph, placement = tasks.graph, tasks.placement
    forward, backward = (is_phase(graph, phase)[tasks.subop] for phase in (Phase.FORWARD, Phase.BACKWARD))
    src, dst = tasks.edge_src, tasks.edge_dst
    part = placement.part[tasks.op]
    remote = (tasks.device[src] != tasks.device[dst]) & (part[src] == part[dst])
    remote &= forward[src] & (src < graph.subops) & ~graph.duplicated[tasks.op[src]]
    tensors = len(graph.graph.tensors)
    sent = (src.astype(np.int64) * tensors + tasks.edge_tensor) * placement.devices + tasks.device[dst]
    return np.asarray(remote & backward[dst] & np.isin(sent, sent[remote & forward[dst]]))


def _first_back(tasks: GroupTasks, readers: Indices, of: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the least position of backward tasks of the ops whose gradients need what is sent. [sends]

    `of` is what each reader needs. [readers]
    """
    ops = tasks.graph.graph.ops
    number = {op.name: index for index, op in enumerate(ops)}
    leader = np.array([number[op.follows or op.name] for op in ops])[tasks.op]
    backward = np.flatnonzero(is_phase(tasks.graph, Phase.BACKWARD)[tasks.subop])
    first = np.full(len(ops), len(tasks.position), dtype=np.int64)
    np.minimum.at(first, leader[backward], tasks.position[backward])
    found = np.full(count, len(tasks.position), dtype=np.int64)
    np.minimum.at(found, of, first[leader[readers]])
    return found


def _last_back(
    tasks: GroupTasks, maker: Indices, before: NDArray[np.int64], *, late_weights: bool
) -> Indices:
    """Return the last backward task of the maker's part on its device before a position; -1: none. [sends]"""
    graph, placement = tasks.graph, tasks.placement
    is_backward = is_phase(graph, Phase.BACKWARD)[tasks.subop]
    if late_weights:
        is_backward &= ~makes_weights_only(graph.graph)[tasks.op]
    back = np.flatnonzero(is_backward).astype(np.int32)
    part = placement.part[tasks.op].astype(np.int64) * placement.devices + tasks.device
    span = len(tasks.position) + 1
    key = part[back] * span + tasks.position[back]
    order = np.argsort(key)
    at = np.searchsorted(key[order], part[maker] * span + before) - 1
    found = back[order][np.maximum(at, 0)]
    return np.where((at >= 0) & (part[found] == part[maker]), found, -1).astype(np.int32)


def _inserted(position: Indices, before: NDArray[np.int64]) -> Indices:
    """Return positions of tasks and of others just before some of these.

    >>> _inserted(np.array([0, 1, 2], dtype=np.int32), np.array([1])).tolist()
    [0, 2, 3, 1]
    """
    place = np.concatenate([2 * position.astype(np.int64), 2 * before - 1])
    order = np.argsort(place, kind="stable")
    found = np.empty(len(order), dtype=np.int32)
    found[order] = np.arange(len(order), dtype=np.int32)
    return found
