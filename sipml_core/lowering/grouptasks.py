"""The compute tasks of one group and the data edges between them, recomputation included."""

from __future__ import annotations

from functools import cached_property

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.lowering.recompute import Checkpoints, checkpoints
from sipml_core.model import BalancedGraph, Phase, Placement, sorted_unique

Indices = NDArray[np.int32]


@attrs.frozen(kw_only=True, eq=False)
class GroupTasks:
    """Tasks 0 .. S-1 are the sub-ops, S, S+1, ... second runs of forward sub-ops.

    Every dependency goes from a lower to a higher `position`.
    """

    placement: Placement
    checkpoints: Checkpoints
    #: Sub-op that each task runs. [tasks]
    subop: Indices
    #: Device of each task in its group. [tasks]
    device: Indices
    #: Place in the order in which a single GPU would run all tasks: forward, backward, optimizer. [tasks]
    position: Indices
    #: Data edges between tasks; tensor and box as in `BalancedGraph`. [edges]
    edge_src: Indices
    edge_dst: Indices
    edge_tensor: Indices
    edge_lo: Indices
    edge_hi: Indices
    #: Second runs wait until the backward pass has come down to their segment. [pairs]
    gate_before: Indices
    gate_after: Indices

    @property
    def graph(self) -> BalancedGraph:
        return self.placement.graph

    @property
    def op(self) -> Indices:
        """Op of each task. [tasks]"""
        return self.graph.subop_op[self.subop]

    @cached_property
    def duration_us(self) -> NDArray[np.float64]:
        """What each task occupies its GPU for. [tasks] [us]

        A device does a duplicated op once: its parts there share the time.
        """
        graph, devices = self.graph, self.placement.limits.devices
        once = graph.subop_op * devices + self.placement.device
        shares = np.bincount(once)[once]
        each_us = np.where(graph.duplicated[graph.subop_op], graph.duration_us / shares, graph.duration_us)
        return np.asarray(each_us[self.subop], dtype=np.float64)


def group_tasks(placement: Placement, *, recompute: bool) -> GroupTasks:
    """Tasks of one group. With `recompute`, forward ops run again where `checkpoints` says so."""
    graph = placement.graph
    plan = checkpoints(graph.graph, recompute=recompute)
    again = np.flatnonzero(plan.runs_again[graph.subop_op]).astype(np.int32)
    copy = np.full(graph.subops, -1, dtype=np.int32)
    copy[again] = graph.subops + np.arange(len(again), dtype=np.int32)
    subop = np.concatenate([np.arange(graph.subops, dtype=np.int32), again])
    anchors = _anchors(graph, plan)
    gate_before, gate_after = _gates(placement, plan, again, anchors)
    edge, source, target = _edges(graph, plan, copy)
    return GroupTasks(
        placement=placement,
        checkpoints=plan,
        subop=subop,
        device=placement.device[subop],
        position=_positions(graph, plan, again, anchors),
        edge_src=source,
        edge_dst=target,
        edge_tensor=graph.edge_tensor[edge],
        edge_lo=graph.edge_lo[edge],
        edge_hi=graph.edge_hi[edge],
        gate_before=gate_before,
        gate_after=gate_after,
    )


def is_phase(graph: BalancedGraph, phase: Phase) -> NDArray[np.bool_]:
    """Which sub-ops belong to a phase. [sub-ops]"""
    return np.array([op.phase is phase for op in graph.graph.ops], dtype=np.bool_)[graph.subop_op]


def unique_pairs(first: Indices, second: Indices) -> tuple[Indices, Indices]:
    """Each pair (first[i], second[i]) once, in order."""
    pairs = sorted_unique(first.astype(np.int64) << 32 | second)
    return (pairs >> 32).astype(np.int32), (pairs & 0xFFFFFFFF).astype(np.int32)


def _edges(graph: BalancedGraph, plan: Checkpoints, copy: Indices) -> tuple[Indices, Indices, Indices]:
    """Edge of the balanced graph, source task, target task, for every data edge between tasks.

    The backward pass and second runs read from a second run where there is one and the tensor was
    not kept; second runs have all inputs of the first.
    """
    src, dst = graph.edge_src, graph.edge_dst
    segment = plan.segment[graph.subop_op]
    inside = segment[src] == segment[dst]
    from_copy = (copy[src] >= 0) & inside & ~plan.kept[graph.edge_tensor]
    source = np.where(from_copy, copy[src], src)
    again = np.flatnonzero(copy[dst] >= 0).astype(np.int32)
    first = np.arange(len(src), dtype=np.int32)
    first_source = np.where(is_phase(graph, Phase.FORWARD)[dst], src, source)
    return (
        np.concatenate([first, again]),
        np.concatenate([first_source, source[again]]),
        np.concatenate([dst, copy[dst[again]]]),
    )


def _anchors(graph: BalancedGraph, plan: Checkpoints) -> Indices:
    """First backward sub-op of each segment; the number of sub-ops if there is none. [segments]"""
    backward = np.flatnonzero(is_phase(graph, Phase.BACKWARD))
    anchors = np.full(plan.segments, graph.subops, dtype=np.int32)
    np.minimum.at(anchors, plan.segment[graph.subop_op[backward]], backward.astype(np.int32))
    return anchors


def _positions(graph: BalancedGraph, plan: Checkpoints, again: Indices, anchors: Indices) -> Indices:
    first = np.arange(graph.subops, dtype=np.int32)
    place = np.concatenate([first, anchors[plan.segment[graph.subop_op[again]]]])
    is_first = np.concatenate([np.ones(len(first)), np.zeros(len(again))])
    last = np.concatenate([is_phase(graph, Phase.OPTIMIZER), np.zeros(len(again), dtype=np.bool_)])
    order = np.lexsort((np.concatenate([first, again]), is_first, place, last))
    position = np.empty(len(order), dtype=np.int32)
    position[order] = np.arange(len(order), dtype=np.int32)
    return position


def _gates(
    placement: Placement, plan: Checkpoints, again: Indices, anchors: Indices
) -> tuple[Indices, Indices]:
    """Second runs on a device wait for its last backward sub-op above their segment, or the group's."""
    graph = placement.graph
    segment = plan.segment[graph.subop_op]
    backward = np.flatnonzero(is_phase(graph, Phase.BACKWARD)).astype(np.int32)
    before = np.full(len(again), -1, dtype=np.int32)
    for number in range(plan.segments):
        above = backward[(segment[backward] > number) & (backward < anchors[number])]
        if len(above):
            last = np.full(placement.limits.devices, above[-1], dtype=np.int32)
            last[placement.device[above]] = above
            mine = segment[again] == number
            before[mine] = last[placement.device[again[mine]]]
    gated = np.flatnonzero(before >= 0)
    return before[gated], (graph.subops + gated).astype(np.int32)
