"""Pipeline schedules: which passes each stage makes, in which order.

A pass takes one micro-batch through one chunk of the model, forward or backward. A schedule is nothing but a
list of passes for each stage, which the stage makes one after the other; what passes wait for on other stages
follows from the data. So how many micro-batches a stage holds is counted from its list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import SipmlError
from sipml_core.fields import frozen
from sipml_core.model import Plan


class PassKind(IntEnum):
    """What a pass does. `WEIGHTS` is the part of the backward pass that nothing upstream waits for."""

    FORWARD = 0
    BACKWARD = 1
    WEIGHTS = 2


@frozen
class Pass:
    """One micro-batch through one chunk. Chunk c of the model is on stage c mod p."""

    kind: PassKind
    micro_batch: int
    chunk: int

    def __str__(self) -> str:
        """Return for instance "F3", or "F3.9" on chunk 9: what charts of schedules show."""
        return f"{'FBW'[self.kind]}{self.micro_batch}.{self.chunk}"


#: The passes of one stage, in order.
Passes = tuple[Pass, ...]


def schedule(name: str, stages: int, micro_batches: int, chunks: int = 1) -> tuple[Passes, ...]:
    """Return the passes of each stage.

    Parameters
    ----------
    name
        "gpipe" (Huang et al. 2019): all forward passes, then all backward passes. "1f1b" (PipeDream-Flush,
        Narayanan et al. 2021): as few forward passes ahead as keep all stages busy. "interleaved" (Narayanan
        et al. 2021, "Efficient large-scale language model training", section 2.2): 1F1B with several chunks
        a stage. "zb-h1" (Qi et al. 2023, "Zero bubble pipeline parallelism"): 1F1B whose backward passes come
        in two parts, the later of which fills the end.
    chunks
        Chunks of each stage, v; 1 unless interleaved.

    Examples
    --------
    >>> for passes in schedule("1f1b", stages=2, micro_batches=3):
    ...     print(*passes)
    F0.0 F1.0 B0.0 F2.0 B1.0 B2.0
    F0.1 B0.1 F1.1 B1.1 F2.1 B2.1
    >>> print(*schedule("zb-h1", stages=2, micro_batches=3)[1])
    F0.1 B0.1 F1.1 B1.1 W0.1 F2.1 B2.1 W1.1 W2.1
    """
    if name not in _SCHEDULES:
        raise SipmlError(f"no schedule {name!r}; known: {', '.join(_SCHEDULES)}")
    return tuple(_SCHEDULES[name](stage, stages, micro_batches, chunks) for stage in range(stages))


def in_flight(passes: Passes, chunks: Sequence[int]) -> NDArray[np.int64]:
    """Return how many micro-batches of each chunk a stage holds, after each of its passes.

    A forward pass adds one; the last pass of the micro-batch over that chunk frees it. [passes, chunks]

    >>> first, second = schedule("1f1b", stages=2, micro_batches=3)
    >>> in_flight(first, [0]).ravel().tolist(), in_flight(second, [1]).ravel().tolist()
    ([1, 2, 1, 2, 1, 0], [1, 0, 1, 0, 1, 0])
    """
    frees = max(p.kind for p in passes)
    change = np.zeros((len(passes), len(chunks)), dtype=np.int64)
    column = {chunk: index for index, chunk in enumerate(chunks)}
    for row, each in enumerate(passes):
        change[row, column[each.chunk]] = (each.kind is PassKind.FORWARD) - (each.kind is frees)
    return np.asarray(np.cumsum(change, axis=0))


def most_in_flight(passes: Passes) -> int:
    """Return the most micro-batches that the stage holds at once, whole or over one of its chunks."""
    return int(in_flight(passes, sorted({p.chunk for p in passes})).max())


def parts_in_flight(plan: Plan) -> NDArray[np.int64]:
    """Return the most micro-batches of each part of the model that are kept at once. [parts]

    >>> parts_in_flight(Plan(mp=1, pp=3, dp=1, global_batch=8, micro_batch=1)).tolist()
    [3, 2, 1]
    """
    held = np.ones(plan.model_parts, dtype=np.int64)
    for stage, passes in enumerate(schedule(plan.schedule, plan.pp, plan.micro_batches, plan.chunks)):
        parts = range(stage, plan.model_parts, plan.pp)
        held[parts] = in_flight(passes, parts).max(axis=0)
    return held


def _gpipe(stage: int, stages: int, micro_batches: int, chunks: int) -> Passes:
    every = range(micro_batches)
    forward = [Pass(PassKind.FORWARD, m, stage) for m in every]
    return (*forward, *(Pass(PassKind.BACKWARD, m, stage) for m in every))


def _one_forward_one_backward(stage: int, stages: int, micro_batches: int, chunks: int) -> Passes:
    every = range(micro_batches)
    return _alternating(
        [Pass(PassKind.FORWARD, m, stage) for m in every],
        [Pass(PassKind.BACKWARD, m, stage) for m in every],
        ahead=stages - 1 - stage,
    )


def _interleaved(stage: int, stages: int, micro_batches: int, chunks: int) -> Passes:
    """Return 1F1B over p micro-batches at a time through each chunk in turn."""
    forward, backward = [], []
    for first in range(0, micro_batches, stages):
        for number in range(chunks):
            for m in range(first, first + stages):
                forward.append(Pass(PassKind.FORWARD, m, number * stages + stage))
                last = (chunks - 1 - number) * stages + stage
                backward.append(Pass(PassKind.BACKWARD, m, last))
    return _alternating(forward, backward, ahead=2 * (stages - 1 - stage) + (chunks - 1) * stages)


def _zero_bubble_h1(stage: int, stages: int, micro_batches: int, chunks: int) -> Passes:
    """Return 1F1B whose weight parts come as many backward passes late as there are stages before."""
    passes: list[Pass] = []
    for each in _one_forward_one_backward(stage, stages, micro_batches, chunks):
        passes.append(each)
        late = each.micro_batch - stage
        if each.kind is PassKind.BACKWARD and late >= 0:
            passes.append(Pass(PassKind.WEIGHTS, late, stage))
    rest = range(max(micro_batches - stage, 0), micro_batches)
    return (*passes, *(Pass(PassKind.WEIGHTS, m, stage) for m in rest))


def _alternating(forward: list[Pass], backward: list[Pass], ahead: int) -> Passes:
    """Return `ahead` forward passes, then one of each in turn, then the backward passes that are left."""
    ahead = min(ahead, len(forward))
    passes = forward[:ahead]
    for each, back in zip(forward[ahead:], backward, strict=False):
        passes += [each, back]
    return (*passes, *backward[len(forward) - ahead :])


_SCHEDULES: dict[str, Callable[[int, int, int, int], Passes]] = {
    "gpipe": _gpipe,
    "1f1b": _one_forward_one_backward,
    "interleaved": _interleaved,
    "zb-h1": _zero_bubble_h1,
}
