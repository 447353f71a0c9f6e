"""Activation checkpoints: where to keep activations, and what to run again while going backward.

The forward ops, in order, are divided into segments. What crosses the end of a segment is kept; the
rest is dropped and made again, by a second run of the segment's forward ops, just before its backward
ops. The last segment needs no second run: its activations have just been made.
"""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.model import OpGraph, Phase, Role


@attrs.frozen(kw_only=True, eq=False)
class Checkpoints:
    """Segments of the ops of a graph, and what recomputation means for each op and tensor."""

    #: Segment of each op; a backward or optimizer op belongs to the op it follows. [ops]
    segment: NDArray[np.int32]
    #: Forward ops that run twice. [ops]
    runs_again: NDArray[np.bool_]
    #: Tensors that are kept from the first run, read outside the segment that makes them. [tensors]
    kept: NDArray[np.bool_]

    @property
    def segments(self) -> int:
        return int(self.segment.max(initial=0)) + 1


def checkpoints(graph: OpGraph, *, recompute: bool) -> Checkpoints:
    """Return segments that make kept activations and the largest segment least (Chen et al. 2016).

    Without `recompute` there is one segment and nothing runs again. Sizes are those of whole tensors.
    """
    cuts = _best_cuts(graph) if recompute else []
    segment = _segments(graph, cuts)
    kept = _read_elsewhere(graph, segment)
    return Checkpoints(segment=segment, kept=kept, runs_again=_runs_again(graph, segment, kept))


def _best_cuts(graph: OpGraph) -> list[int]:
    """Return numbers of forward ops before which a segment starts."""
    saved, crossing = _sizes(graph)
    best: tuple[float, list[int]] = (float("inf"), [])
    count, tried = 1.0, 0
    while int(count) <= len(saved):
        if int(count) != tried:
            tried = int(count)
            largest = max(saved.sum() / tried, saved.max(initial=0.0))
            cost, cuts = _cheapest_cuts(saved, crossing, largest)
            best = min(best, (cost + largest, cuts), key=lambda option: option[0])
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


def _segments(graph: OpGraph, cuts: list[int]) -> NDArray[np.int32]:
    segment: dict[str, int] = {}
    forward = (op.name for op in graph.ops if op.phase is Phase.FORWARD)
    for index, name in enumerate(forward):
        segment[name] = int(np.searchsorted(cuts, index, side="right"))
    return np.array([segment.get(op.follows or op.name, len(cuts)) for op in graph.ops], dtype=np.int32)


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


def _runs_again(graph: OpGraph, segment: NDArray[np.int32], kept: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return ops of all segments but the last whose output the backward pass needs, directly or not."""
    tensor_kept = {tensor.name: bool(k) for tensor, k in zip(graph.tensors, kept, strict=True)}
    last = int(segment.max(initial=0))
    needed: set[str] = set()
    again = np.zeros(len(graph.ops), dtype=np.bool_)
    for index in range(len(graph.ops) - 1, -1, -1):
        op = graph.ops[index]
        if op.phase is Phase.FORWARD:
            again[index] = segment[index] < last and any(operand.tensor in needed for operand in op.writes)
        if op.phase is Phase.BACKWARD or again[index]:
            needed.update(
                o.tensor for o in op.reads if not tensor_kept[o.tensor] and _travels(graph, o.tensor)
            )
    return again


def _travels(graph: OpGraph, tensor: str) -> bool:
    return graph.tensor[tensor].role is Role.ACTIVATION
