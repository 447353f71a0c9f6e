"""Replicas that have the same experts: groups with sums and shares of their own."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from sipml_core.model import OpGraph, Phase, Plan, Role

S = TypeVar("S", bound=np.generic)


def by_experts(table: NDArray[S], plan: Plan, axis: int = 0) -> NDArray[S]:
    """Return a table over replicas by groups with the same experts: [.., replicas, ..] as [.., e, rest, ..].

    Replicas are those of whole blocks, all or the first few.

    >>> plan = Plan(mp=1, dp=4, ep=2, global_batch=4)
    >>> by_experts(np.arange(4), plan).tolist()
    [[0, 2], [1, 3]]
    >>> plan = Plan(mp=1, cp=2, dp=2, ep=2, global_batch=2)
    >>> by_experts(np.arange(4), plan).tolist()
    [[0, 1], [2, 3]]
    """
    before, after = table.shape[:axis], table.shape[axis + 1 :]
    blocks = table.reshape(*before, -1, plan.ep, plan.cp, *after)
    return np.moveaxis(blocks, axis + 1, axis).reshape(*before, plan.ep, -1, *after)


def from_experts(table: NDArray[S], plan: Plan, axis: int = 0) -> NDArray[S]:
    """Return what `by_experts` was made of.

    >>> plan = Plan(mp=1, cp=2, dp=4, ep=2, global_batch=4)
    >>> from_experts(by_experts(np.arange(8), plan), plan).tolist()
    [0, 1, 2, 3, 4, 5, 6, 7]
    """
    before, after = table.shape[:axis], table.shape[axis + 2 :]
    groups = table.reshape(*before, plan.ep, -1, plan.cp, *after)
    return np.moveaxis(groups, axis, axis + 1).reshape(*before, -1, *after)


def updating_replicas(graph: OpGraph, plan: Plan) -> NDArray[np.int64]:
    """Return how many replicas share the work of each op, if it is the optimizer's. [ops]"""

    def of_experts(op: Any) -> bool:
        reads = (graph.tensor[operand.tensor] for operand in op.reads)
        return any(t.role is Role.PARAMETER and t.routing for t in reads)

    return np.array(
        [
            plan.expert_replicas if op.phase is Phase.OPTIMIZER and of_experts(op) else plan.replicas
            for op in graph.ops
        ]
    )


def load_of_ranks(graph: OpGraph, plan: Plan) -> NDArray[np.float64]:
    """Return how much longer each op takes on replicas of a block than with balanced experts. [block, ops]

    An op on rows of experts takes as long as there are rows: e times the part that goes to its replica.
    """
    factor = np.ones((plan.ep, len(graph.ops)))
    for index, op in enumerate(graph.ops):
        if op.routing is not None:
            factor[:, index] = np.array(graph.expert_shares[op.routing]) * plan.ep
    return factor.repeat(plan.cp, axis=0)


def most_loaded(graph: OpGraph, part: NDArray[np.int32]) -> NDArray[np.float64]:
    """Return how many times the rows of balance each tensor has on the fullest replica of a block. [tensors]

    That is the one with most rows in all layers of a part of the model; tensors that ops on rows make count,
    but what is sent back, which is there for a replica's own tokens. `part` is that of each op. [ops]
    """
    factor = {tensor.name: 1.0 for tensor in graph.tensors}
    on_rows = [(index, op) for index, op in enumerate(graph.ops) if op.routing is not None]
    for number in {int(part[index]) for index, _ in on_rows}:
        own = [op for index, op in on_rows if part[index] == number]
        layers = sorted({op.routing for op in own if op.routing})
        shares = {layer: np.array(graph.expert_shares[layer]) for layer in layers}
        most = int(np.argmax(sum(shares.values())))
        for op in own:
            for operand in op.writes:
                tensor = graph.tensor[operand.tensor]
                if tensor.role is Role.ACTIVATION and tensor.exchanged is None and op.routing:
                    factor[tensor.name] = float(shares[op.routing][most] * len(shares[op.routing]))
    return np.array([factor[tensor.name] for tensor in graph.tensors])
