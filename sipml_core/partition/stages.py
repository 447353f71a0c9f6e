"""From a graph of ops to stages: contiguous parts, balanced in time, between which few bytes cross.

Balance alone cuts in the worst places, inside attention for instance. So first the best balance is found, and
then, among the cuts that are nearly as balanced, those over which the least is sent.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import TooManyStagesError
from sipml_core.model import Op, OpGraph, Phase, Role
from sipml_core.partition.statedcuts import stated_cuts

Times = NDArray[np.float64]


def cut_stages(
    graph: OpGraph,
    time_us: Times,
    stages: int,
    tolerance: float = 0.0,
    stated: Sequence[int | str] | None = None,
) -> NDArray[np.int32]:
    """Return the stage of each op. [ops]

    Forward ops in their order are divided into `stages` contiguous parts; other ops are where the forward op
    is that they follow. A sum of gradients whose parts are made on later stages is made on the first of
    these, so that one gradient crosses and not its parts.

    Parameters
    ----------
    time_us
        Time of each op on the devices of a stage; those of the optimizer do not count. [ops]
    tolerance
        The slowest stage may take so much longer than with the best balance, if fewer bytes cross.
    stated
        Cuts that are taken instead, see `stated_cuts`.

    Raises
    ------
    ConfigError
        There are more stages than forward ops; or there is no such cut as is stated.

    Examples
    --------
    The worked example, two layers: f with f' on the first stage, g with g' on the second.

    >>> from sipml_core.testing.worked import two_layers
    >>> [op.name for op in two_layers().ops]
    ['f', 'g', "g'", "f'", 'update w', 'update v']
    >>> cut_stages(two_layers(), np.ones(6), stages=2).tolist()
    [0, 1, 1, 0, 0, 1]
    """
    leader = _leaders(graph)
    forward = [op.name for op in graph.ops if op.phase is Phase.FORWARD]
    if stages > len(forward):
        raise TooManyStagesError(
            f"plan.pp x chunks: {graph.name} has {len(forward)} forward ops, which makes {len(forward)} "
            f"stages at most, got {stages}; lower pp or chunks"
        )
    number = {name: index for index, name in enumerate(forward)}
    if stated is None:
        first = _cuts(_weights_us(graph, time_us, leader, number), crossing_bytes(graph), stages, tolerance)
    else:
        first = stated_cuts(graph, stated)
    stage_of = {name: int(np.searchsorted(first, index, side="right")) for name, index in number.items()}
    stage = {op.name: stage_of[leader[op.name]] for op in graph.ops}
    _move_sums(graph, stage)
    return np.array([stage[op.name] for op in graph.ops], dtype=np.int32)


def _weights_us(graph: OpGraph, time_us: Times, leader: dict[str, str], number: dict[str, int]) -> Times:
    """Return the time of each forward op with those that follow it, but for the optimizer's. [forward ops]"""
    weight_us = np.zeros(len(number))
    for op, time in zip(graph.ops, time_us, strict=True):
        if op.phase is not Phase.OPTIMIZER:
            weight_us[number[leader[op.name]]] += time
    return weight_us


def crossing_bytes(graph: OpGraph) -> Times:
    """Return what crosses a cut before each forward op, forward and back, once for each tensor. [forward ops]

    >>> from sipml_core.testing.worked import two_layers
    >>> crossing_bytes(two_layers()).tolist()
    [0.0, 16.0]
    """
    forward = [op for op in graph.ops if op.phase is Phase.FORWARD]
    last_read = {o.tensor: index for index, op in enumerate(forward) for o in op.reads}
    change = np.zeros(len(forward) + 1)
    for index, op in enumerate(forward):
        for operand in op.writes:
            last = last_read.get(operand.tensor, index)
            size = graph.tensor[operand.tensor].size_bytes
            change[index + 1] += 2.0 * size
            change[last + 1] -= 2.0 * size
    return np.asarray(np.cumsum(change)[:-1])


def _leaders(graph: OpGraph) -> dict[str, str]:
    """Return the forward op that each op belongs to."""
    leader: dict[str, str] = {}

    def of(op: Op) -> str:
        if op.name not in leader:
            leader[op.name] = op.name if op.follows is None else of(graph.op[op.follows])
        return leader[op.name]

    for op in graph.ops:
        of(op)
    return leader


def _cuts(weight_us: Times, crossing: Times, stages: int, tolerance: float) -> NDArray[np.int64]:
    """Return the first op of each stage but the first. [stages - 1]

    Examples
    --------
    Equal ops, of which the third hands on little: with some tolerance it is the end of a stage.

    >>> weight_us, crossing = np.ones(6), np.array([0.0, 9.0, 9.0, 9.0, 1.0, 9.0])
    >>> _cuts(weight_us, crossing, stages=2, tolerance=0.0).tolist()
    [3]
    >>> _cuts(weight_us, crossing, stages=2, tolerance=0.4).tolist()
    [4]
    """
    total = np.concatenate([[0.0], np.cumsum(weight_us)])
    bound = _best_balance(total, stages) * (1.0 + tolerance) * (1.0 + 1e-12)
    ops = len(weight_us)

    # For the first k stages over the first j ops: bytes that cross, time of the slowest, and where stage k
    # begins. [ops + 1] each, and [stages, ops + 1]
    sent, slowest = np.full(ops + 1, np.inf), np.zeros(ops + 1)
    sent[0] = 0.0
    begins = np.zeros((stages, ops + 1), dtype=np.int64)
    earliest = np.searchsorted(total, total - bound, side="left")
    crosses = np.append(crossing, 0.0)
    for stage in range(stages):
        next_sent, next_slowest = np.full(ops + 1, np.inf), np.zeros(ops + 1)
        for stop in range(stage + 1, ops + 1 - (stages - 1 - stage)):
            span = slice(int(earliest[stop]), stop)
            cost = sent[span] + crosses[span]
            least = cost.min()
            if not np.isfinite(least):
                continue
            # Of the cuts with least bytes, the best balance. [candidates]
            at = np.flatnonzero(cost == least) + span.start
            time = np.maximum(slowest[at], total[stop] - total[at])
            best = int(np.argmin(time))
            next_sent[stop], next_slowest[stop] = least, time[best]
            begins[stage, stop] = at[best]
        sent, slowest = next_sent, next_slowest

    first, stop = [], ops
    for stage in range(stages - 1, 0, -1):
        stop = int(begins[stage, stop])
        first.append(stop)
    return np.array(first[::-1], dtype=np.int64)


def _best_balance(total: Times, stages: int) -> float:
    """Return the time of the slowest stage in the best balance, from times summed up to each op. [us]

    >>> _best_balance(np.array([0.0, 3.0, 4.0, 9.0]), stages=2)
    5.0
    """
    # Bisection between what cannot do and what does; then the time that the stages really take.
    low, high = 0.0, float(total[-1])
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (low, middle) if _stages_within(total, middle) <= stages else (middle, high)
        if high - low <= 1e-13 * high:
            break
    at, longest = 0, 0.0
    while at < len(total) - 1:
        stop = int(np.searchsorted(total, total[at] + high, side="right")) - 1
        longest, at = max(longest, float(total[stop] - total[at])), stop
    return longest


def _stages_within(total: Times, bound: float) -> float:
    """Return how many stages it takes if none takes longer than `bound`; infinite where an op does."""
    at, count = 0, 0
    while at < len(total) - 1:
        stop = int(np.searchsorted(total, total[at] + bound, side="right")) - 1
        if stop == at:
            return float("inf")
        at, count = stop, count + 1
    return count


def _move_sums(graph: OpGraph, stage: dict[str, int]) -> None:
    """Put sums of gradients on the first stage that makes a part of them."""
    phase = {op.name: op.phase for op in graph.ops}
    for op in graph.ops:
        makers = [graph.producer.get(operand.tensor) for operand in op.reads]
        if op.phase is not Phase.BACKWARD or len(makers) < 2:
            continue
        of_gradients = all(maker is not None and phase[maker] is Phase.BACKWARD for maker in makers)
        if of_gradients and all(graph.tensor[o.tensor].role is Role.ACTIVATION for o in op.writes):
            stage[op.name] = max(stage[op.name], min(stage[maker] for maker in makers if maker))
