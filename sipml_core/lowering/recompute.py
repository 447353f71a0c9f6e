"""Activation checkpoints: where to keep activations, and what to run again while going backward.

The forward ops, in order, are divided into segments, none of which is on two pipeline stages. What crosses
the end of a segment is kept; the rest is dropped and made again, by a second run of the segment's forward
ops, just before its backward ops. Where each micro-batch goes back at once after it has gone forward, the
last segment needs no second run: its activations have just been made.
"""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import frozen
from sipml_core.model import Op, OpGraph, Phase, Role, recompute_level


@frozen(kw_only=True, eq=False)
class Checkpoints:
    """Segments of the ops of a graph, and what recomputation means for each op and tensor."""

    #: Segment of each op; a backward or optimizer op belongs to the op it follows. [ops]
    segment: NDArray[np.int32]
    #: Forward ops that run twice. [ops]
    runs_again: NDArray[np.bool_]
    #: Tensors that are kept from the first run, read outside the segment that makes them. [tensors]
    kept: NDArray[np.bool_]
    #: Segments that are not run again although they could be: their activations are the last ones made.
    #: [segments]
    just_made: NDArray[np.bool_] = attrs.field(
        default=attrs.Factory(lambda self: _last_only(self.segment), takes_self=True)
    )

    @property
    def segments(self) -> int:
        return int(self.segment.max(initial=0)) + 1


def _last_only(segment: NDArray[np.int32]) -> NDArray[np.bool_]:
    last = int(segment.max(initial=0))
    return np.asarray(np.arange(last + 1) == last)


def checkpoints(
    graph: OpGraph,
    *,
    recompute: bool | str,
    part: NDArray[np.int32] | None = None,
    in_flight: NDArray[np.int64] | None = None,
) -> Checkpoints:
    """Return segments that make kept activations and the largest segment least (Chen et al. 2016).

    Without `recompute` there is one segment on each part of the model and nothing runs again. Sizes are those
    of whole tensors.

    Parameters
    ----------
    recompute
        "none", "full", or "selective": only what attention makes of all pairs of tokens is made again
        (Korthikanti et al. 2022). True: "full".
    part
        Contiguous part of the model that each op belongs to, see `Placement`; None: all to one. [ops]
    in_flight
        Micro-batches of each part whose activations are kept at once; None: one. [parts]
    """
    level = recompute_level(recompute)
    part = np.zeros(len(graph.ops), dtype=np.int32) if part is None else part
    parts = int(part.max(initial=0)) + 1
    in_flight = np.ones(parts, dtype=np.int64) if in_flight is None else in_flight
    forward = np.array([op.phase is Phase.FORWARD for op in graph.ops], dtype=np.bool_)
    # Forward ops before which each part starts, and the end. [parts + 1]
    bounds = np.searchsorted(part[forward], np.arange(parts + 1)).tolist()
    cuts: list[int] = bounds[1:-1]
    core = _attention_core(graph) if level == "selective" else np.zeros(len(graph.ops), dtype=np.bool_)
    if level == "full":
        saved, crossing = _sizes(graph)
        for start, stop, weight in zip(bounds[:-1], bounds[1:], in_flight.tolist(), strict=True):
            inner = _best_cuts(saved[start:stop], crossing[start:stop], weight)
            cuts = sorted({*cuts, *(start + cut for cut in inner)})
    elif level == "selective":
        edges = np.flatnonzero(np.diff(core[forward].astype(np.int8))) + 1
        cuts = sorted({*cuts, *edges.tolist()})
    segment = _segments(graph, cuts, part)
    part_of = np.zeros(int(segment.max(initial=0)) + 1, dtype=np.int32)
    part_of[segment[forward]] = part[forward]
    if level == "selective":
        kept = ~_written_by(graph, core) | _read_elsewhere(graph, segment)
        just_made = np.ones(len(part_of), dtype=np.bool_)
        just_made[segment[core]] = False
    else:
        kept = _read_elsewhere(graph, segment)
        last_of_part = np.append(np.diff(part_of) > 0, True)
        just_made = last_of_part & ((in_flight[part_of] == 1) | (level == "none"))
    again = _runs_again(graph, segment, kept, just_made)
    return Checkpoints(segment=segment, kept=kept, runs_again=again, just_made=just_made)


def _attention_core(graph: OpGraph) -> NDArray[np.bool_]:
    """Return forward ops that make or read something of all pairs of tokens: scores to context. [ops]

    These are a softmax, what makes its input, and what reads its output, through elementwise ops.
    """
    forward = [index for index, op in enumerate(graph.ops) if op.phase is Phase.FORWARD]
    scores = {
        o.tensor for index in forward if graph.ops[index].kind == "softmax" for o in graph.ops[index].reads
    }
    core = np.zeros(len(graph.ops), dtype=np.bool_)
    pairs: set[str] = set()
    for index in forward:
        op = graph.ops[index]
        reads, writes = {o.tensor for o in op.reads}, {o.tensor for o in op.writes}
        core[index] = bool(writes & scores or reads & (scores | pairs))
        if op.kind == "softmax" or (op.kind == "elementwise" and reads & pairs):
            pairs |= writes
    return core


def _written_by(graph: OpGraph, ops: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which tensors some ops write. [tensors]"""
    written = {o.tensor for op, chosen in zip(graph.ops, ops, strict=True) if chosen for o in op.writes}
    return np.array([tensor.name in written for tensor in graph.tensors], dtype=np.bool_)


def _best_cuts(saved: NDArray[np.float64], crossing: NDArray[np.float64], in_flight: int) -> list[int]:
    """Return numbers of forward ops before which a segment starts.

    What crosses is kept for `in_flight` micro-batches, what a segment makes again for one.
    """
    best: tuple[float, list[int]] = (float("inf"), [])
    count, tried = 1.0, 0
    while int(count) <= len(saved):
        if int(count) != tried:
            tried = int(count)
            largest = max(saved.sum() / tried, saved.max(initial=0.0))
            cost, cuts = _cheapest_cuts(saved, crossing, largest)
            best = min(best, (in_flight * cost + largest, cuts), key=lambda option: option[0])
        count *= 2**0.5
    return best[1]


def _sizes(graph: OpGraph) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return bytes that each forward op makes for the backward pass, and bytes alive before each."""
    forward = [op for op in graph.ops if op.phase is Phase.FORWARD]
    number = {op.name: index for index, op in enumerate(forward)}
    last_read: dict[str, int] = {}
    read_back: set[str] = set()
    for op in graph.ops:
        for operand in op.reads:
            if op.phase is Phase.FORWARD:
                last_read[operand.tensor] = number[op.name]
            elif op.phase is Phase.BACKWARD:
                read_back.add(operand.tensor)
    saved, change = np.zeros(len(forward)), np.zeros(len(forward) + 1)
    for index, op in enumerate(forward):
        for operand in op.writes:
            size = graph.tensor[operand.tensor].size_bytes
            saved[index] += size * (operand.tensor in read_back)
            change[index + 1] += size
            change[last_read.get(operand.tensor, index) + 1] -= size
    return saved, np.cumsum(change)[:-1]


def _cheapest_cuts(
    saved: NDArray[np.float64], crossing: NDArray[np.float64], largest: float
) -> tuple[float, list[int]]:
    """Return cuts of least crossing bytes such that no segment saves more than `largest` bytes."""
    total = np.concatenate([[0.0], np.cumsum(saved)])
    reach = np.searchsorted(total, total - largest * (1 + 1e-9))
    cost, came_from = np.zeros(len(total)), np.zeros(len(total), dtype=np.int64)
    step = np.concatenate([[0.0], crossing[1:]])
    for stop in range(1, len(total)):
        first = int(reach[stop])
        came_from[stop] = first + int(np.argmin(cost[first:stop] + step[first:stop]))
        cost[stop] = cost[came_from[stop]] + step[came_from[stop]]
    cuts, at = [], int(came_from[-1])
    while at > 0:
        cuts.append(at)
        at = int(came_from[at])
    return float(cost[-1]), cuts[::-1]


def _segments(graph: OpGraph, cuts: list[int], part: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the segment of each op; of one on another part than what it follows, the first there. [ops]"""
    segment: dict[str, int] = {}
    part_of: dict[str, int] = {}
    first_of: dict[int, int] = {}
    forward = ((op.name, at) for op, at in zip(graph.ops, part.tolist(), strict=True) if _is_forward(op))
    for index, (name, at) in enumerate(forward):
        segment[name], part_of[name] = int(np.searchsorted(cuts, index, side="right")), at
        first_of.setdefault(at, segment[name])
    return np.array(
        [
            segment.get(leader, len(cuts)) if part_of.get(leader, at) == at else first_of[at]
            for at, leader in zip(part.tolist(), (op.follows or op.name for op in graph.ops), strict=True)
        ],
        dtype=np.int32,
    )


def _is_forward(op: Op) -> bool:
    return op.phase is Phase.FORWARD


def _read_elsewhere(graph: OpGraph, segment: NDArray[np.int32]) -> NDArray[np.bool_]:
    made_in = {
        operand.tensor: segment[index]
        for index, op in enumerate(graph.ops)
        if op.phase is Phase.FORWARD
        for operand in op.writes
    }
    elsewhere = {
        operand.tensor
        for index, op in enumerate(graph.ops)
        for operand in op.reads
        if made_in.get(operand.tensor, segment[index]) != segment[index]
    }
    return np.array([tensor.name in elsewhere for tensor in graph.tensors], dtype=np.bool_)


def _runs_again(
    graph: OpGraph, segment: NDArray[np.int32], kept: NDArray[np.bool_], just_made: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Return ops of segments not `just_made` whose output the backward pass needs, directly or not. [ops]"""
    tensor_kept = {tensor.name: bool(k) for tensor, k in zip(graph.tensors, kept, strict=True)}
    needed: set[str] = set()
    again = np.zeros(len(graph.ops), dtype=np.bool_)
    for index in range(len(graph.ops) - 1, -1, -1):
        op = graph.ops[index]
        if op.phase is Phase.FORWARD:
            remakes = not just_made[segment[index]]
            again[index] = remakes and any(operand.tensor in needed for operand in op.writes)
        if op.phase is Phase.BACKWARD or again[index]:
            needed.update(
                o.tensor for o in op.reads if not tensor_kept[o.tensor] and _travels(graph, o.tensor)
            )
    return again


def _travels(graph: OpGraph, tensor: str) -> bool:
    return graph.tensor[tensor].role is Role.ACTIVATION
