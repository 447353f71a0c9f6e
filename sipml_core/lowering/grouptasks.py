"""The compute tasks of one group and the data edges between them, recomputation included."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import frozen
from sipml_core.lowering.recompute import Checkpoints, checkpoints
from sipml_core.model import BalancedGraph, OpGraph, Phase, Placement, Role, sorted_unique

Indices = NDArray[np.int32]


@frozen(kw_only=True, eq=False)
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
    #: So many of the last tasks do no work: they send again what their sub-op made, see `gathered_again`.
    resends: int = 0

    @property
    def works(self) -> int:
        """Return the number of tasks that do work: they are the first."""
        return len(self.subop) - self.resends

    @property
    def graph(self) -> BalancedGraph:
        return self.placement.graph

    @cached_property
    def op(self) -> Indices:
        """Return the op of each task. [tasks]"""
        return self.graph.subop_op[self.subop]

    @cached_property
    def duration_us(self) -> NDArray[np.float64]:
        """Return what each task occupies its GPU for. [tasks] [us]

        A device does a duplicated op once: its parts there share the time.
        """
        graph, devices = self.graph, self.placement.devices
        once = graph.subop_op * devices + self.placement.device
        shares = np.bincount(once)[once]
        each_us = np.where(graph.duplicated[graph.subop_op], graph.duration_us / shares, graph.duration_us)
        took_us: NDArray[np.float64] = np.asarray(each_us[self.subop], dtype=np.float64)
        took_us[self.works :] = 0.0
        return took_us


def group_tasks(
    placement: Placement,
    *,
    recompute: bool | str,
    in_flight: NDArray[np.int64] | None = None,
    late_weights: bool = False,
) -> GroupTasks:
    """Return the tasks of one replica; forward ops run again where `checkpoints` says so.

    With `late_weights`, gradients of parameters are made in a later pass, which second runs do not wait for.

    Examples
    --------
    The worked example: y (tensor 2) goes from task 0 to g (tasks 1, 2, 3) and to g' (4, 5, 6), z (4) stays
    on its device, and all parts of dy (5) go to task 7.

    >>> from sipml_core.testing.worked import placed
    >>> tasks = group_tasks(placed(), recompute=False)
    >>> tasks.device.tolist()
    [0, 0, 1, 2, 0, 1, 2, 0, 0, 0, 1, 2]
    >>> print(np.array([tasks.edge_src, tasks.edge_dst, tasks.edge_tensor]))
    [[0 0 0 0 0 0 1 2 3 4 5 6]
     [1 2 3 4 5 6 4 5 6 7 7 7]
     [2 2 2 2 2 2 4 4 4 5 5 5]]
    """
    graph = placement.graph
    plan = checkpoints(graph.graph, recompute=recompute, part=placement.part, in_flight=in_flight)

    # Sub-ops that run twice; `copy`: the task that is each sub-op's second run, or -1. [sub-ops]
    again = np.flatnonzero(plan.runs_again[graph.subop_op]).astype(np.int32)
    copy = np.full(graph.subops, -1, dtype=np.int32)
    copy[again] = graph.subops + np.arange(len(again), dtype=np.int32)
    subop = np.concatenate([np.arange(graph.subops, dtype=np.int32), again])

    anchors = _anchors(graph, plan)
    gate_before, gate_after = _gates(placement, plan, again, anchors, late_weights=late_weights)
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
    """Return which sub-ops belong to a phase. [sub-ops]"""
    return np.array([op.phase is phase for op in graph.graph.ops], dtype=np.bool_)[graph.subop_op]


def makes_weights_only(graph: OpGraph) -> NDArray[np.bool_]:
    """Return which ops are backward and make nothing but gradients of parameters. [ops]"""
    return np.array(
        [
            op.phase is Phase.BACKWARD
            and all(graph.tensor[o.tensor].role is Role.GRADIENT for o in op.writes)
            for op in graph.ops
        ],
        dtype=np.bool_,
    )


def unique_pairs(first: Indices, second: Indices) -> tuple[Indices, Indices]:
    """Return each pair (first[i], second[i]) once, in order.

    >>> unique_pairs(np.array([1, 0, 1]), np.array([2, 3, 2]))
    (array([0, 1], dtype=int32), array([3, 2], dtype=int32))
    """
    pairs = sorted_unique(first.astype(np.int64) << 32 | second)
    return (pairs >> 32).astype(np.int32), (pairs & 0xFFFFFFFF).astype(np.int32)


def _edges(graph: BalancedGraph, plan: Checkpoints, copy: Indices) -> tuple[Indices, Indices, Indices]:
    """Return edge of the balanced graph, source task, target task, for every data edge between tasks.

    The backward pass and second runs read from a second run where there is one and the tensor was
    not kept; second runs have all inputs of the first.
    """
    src, dst = graph.edge_src, graph.edge_dst
    segment = plan.segment[graph.subop_op]
    inside = segment[src] == segment[dst]
    # Whether a reader in the backward pass, or in a second run, has its input from a second run. [edges]
    from_copy = (copy[src] >= 0) & inside & ~plan.kept[graph.edge_tensor]
    source = np.where(from_copy, copy[src], src)
    # All edges of first runs, then once more those into sub-ops that run again.
    again = np.flatnonzero(copy[dst] >= 0).astype(np.int32)
    first = np.arange(len(src), dtype=np.int32)
    first_source = np.where(is_phase(graph, Phase.FORWARD)[dst], src, source)
    return (
        np.concatenate([first, again]),
        np.concatenate([first_source, source[again]]),
        np.concatenate([dst, copy[dst[again]]]),
    )


def _anchors(graph: BalancedGraph, plan: Checkpoints) -> Indices:
    """Return the first backward sub-op of each segment; the number of sub-ops if it has none. [segments]"""
    backward = np.flatnonzero(is_phase(graph, Phase.BACKWARD))
    anchors = np.full(plan.segments, graph.subops, dtype=np.int32)
    np.minimum.at(anchors, plan.segment[graph.subop_op[backward]], backward.astype(np.int32))
    return anchors


def _positions(graph: BalancedGraph, plan: Checkpoints, again: Indices, anchors: Indices) -> Indices:
    """Return the place of each task in the order of a single GPU. [tasks]

    Second runs stand just before the first backward sub-op of their segment, the optimizer at the end.

    Examples
    --------
    The worked example with f in a segment of its own, run again as task 12: before f' (task 7), after g'.

    >>> from sipml_core.testing.worked import placed
    >>> segment, again = np.array([0, 1, 1, 0, 0, 1]), np.array([0], dtype=np.int32)
    >>> plan = Checkpoints(segment=segment, runs_again=segment == 2, kept=np.zeros(8, dtype=bool))
    >>> graph = placed().graph
    >>> _anchors(graph, plan).tolist()
    [7, 4]
    >>> _positions(graph, plan, again, _anchors(graph, plan)).tolist()
    [0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 7]
    """
    # Where each task stands: first runs at their own number, second runs at their segment's anchor. [tasks]
    first = np.arange(graph.subops, dtype=np.int32)
    place = np.concatenate([first, anchors[plan.segment[graph.subop_op[again]]]])
    # At one place second runs come before the first run there, in order of their sub-ops.
    is_first = np.concatenate([np.ones(len(first)), np.zeros(len(again))])
    last = np.concatenate([is_phase(graph, Phase.OPTIMIZER), np.zeros(len(again), dtype=np.bool_)])

    # Tasks in order, and the inverse of that.
    order = np.lexsort((np.concatenate([first, again]), is_first, place, last))
    position = np.empty(len(order), dtype=np.int32)
    position[order] = np.arange(len(order), dtype=np.int32)
    return position


def _gates(
    placement: Placement, plan: Checkpoints, again: Indices, anchors: Indices, *, late_weights: bool = False
) -> tuple[Indices, Indices]:
    """Return which tasks second runs wait for: the last backward sub-op above their segment.

    On their device, or in the group if the device has none; those of the last segment of a pipeline stage are
    not gated here, as the gradients come from the next stage. [gated], [gated]

    Examples
    --------
    The worked example with f in segment 0, g in segment 1, and f run again as task 12: on device 0 the
    backward pass has come down to segment 0 when g' there (task 4) is done.

    >>> from sipml_core.testing.worked import placed
    >>> segment, again = np.array([0, 1, 1, 0, 0, 1]), np.array([0], dtype=np.int32)
    >>> plan = Checkpoints(segment=segment, runs_again=segment == 2, kept=np.zeros(8, dtype=bool))
    >>> _gates(placed(), plan, again, anchors=np.array([7, 4], dtype=np.int32))
    (array([4], dtype=int32), array([12], dtype=int32))
    """
    graph = placement.graph
    segment = plan.segment[graph.subop_op]
    is_backward = is_phase(graph, Phase.BACKWARD)
    if late_weights:
        is_backward &= ~makes_weights_only(graph.graph)[graph.subop_op]
    backward = np.flatnonzero(is_backward).astype(np.int32)
    part = placement.part[graph.subop_op]
    # Part of each segment that runs again; -1: it does not. [segments]
    part_of = np.full(plan.segments, -1, dtype=np.int32)
    part_of[segment[again]] = part[again]
    # What each second run waits for; -1: nothing. [again]
    before = np.full(len(again), -1, dtype=np.int32)
    for number in np.flatnonzero(part_of >= 0).tolist():
        here = part[backward] == part_of[number]
        above = backward[here & (segment[backward] > number) & (backward < anchors[number])]
        if len(above):
            # The last of these on each device. [devices]
            last = np.full(placement.devices, above[-1], dtype=np.int32)
            last[placement.device[above]] = above
            mine = segment[again] == number
            before[mine] = last[placement.device[again[mine]]]
    gated = np.flatnonzero(before >= 0)
    return before[gated], (graph.subops + gated).astype(np.int32)
