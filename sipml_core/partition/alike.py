"""Ops that are alike: models repeat their layers, so most ops differ from others in nothing but names."""

from __future__ import annotations

from collections.abc import Hashable

from sipml_core.model import Axis, Op, OpGraph


class AlikeOps:
    """Numbers the ops of a graph: two ops with one number differ in nothing but names.

    They run over the same dimensions, may be cut in the same ways, and their operands, in order, have
    tensors of the same shape, role and element size, followed along the same axes.
    """

    def __init__(self, graph: OpGraph) -> None:
        self._graph = graph
        self._axes: dict[tuple[Axis, ...], int] = {}
        numbers: dict[Hashable, int] = {}
        self._number = {op.name: numbers.setdefault(self._signature(op), len(numbers)) for op in graph.ops}

    def number(self, op: Op) -> int:
        """Return the number that all ops like `op` have."""
        return self._number[op.name]

    def _signature(self, op: Op) -> Hashable:
        """Return all that an op is but names; operands of one tensor have one local number."""
        local: dict[str, int] = {}
        operands = []
        for operand in (*op.reads, *op.writes):
            tensor = self._graph.tensor[operand.tensor]
            axes = self._axes.setdefault(operand.axes, len(self._axes))
            number = local.setdefault(operand.tensor, len(local))
            operands.append((number, axes, tensor.role, tensor.shape, tensor.element_bytes))
        return (
            op.kind, op.phase, op.follows is None, op.flops, len(op.reads), tuple(operands),
            tuple(op.dims.items()), tuple(op.splits.items()),
        )  # fmt: skip
