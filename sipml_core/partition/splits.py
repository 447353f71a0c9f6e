"""Along which dimension to cut each op: least time by compute, traffic and synchronisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sipml_core.errors import ConfigError
from sipml_core.fields import frozen
from sipml_core.model import Cluster, OpGraph, Prices
from sipml_core.partition.costs import Budget, SplitCosts, Table, Variable, split_costs
from sipml_core.partition.elimination import minimise_each
from sipml_core.partition.layouts import Choice, Layout
from sipml_core.partition.partitioning import Cut
from sipml_core.partition.slices import SliceTimes
from sipml_core.plugin import GpuModel

#: Shares of the synchronisation time that are tried as its weight.
_SYNC_WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)
#: Weights of memory that are tried in turn until the layout fits. [us per GB]
_MEMORY_WEIGHTS_US_PER_GB = tuple(10.0 ** (half / 2) for half in range(2, 15))
#: Where nothing fits, the first layout whose memory is this close to the least is kept.
_NEAR_LEAST = 1.05


def choose_splits(
    graph: OpGraph,
    gpu: GpuModel,
    cluster: Cluster,
    *,
    mp: int,
    tau_us: float,
    dp: int,
    prices: Prices,
    recompute: bool = False,
    times: SliceTimes | None = None,
    stages: int = 1,
    gradient_bytes: int | None = None,
) -> Layout:
    """Return the layout with the least estimated time of a training step.

    The time of a layout is
        compute + traffic + max(0, synchronisation - backward compute),
    where compute counts the longest slice of every op, traffic the busiest port of every edge that
    crosses devices (see `costs`), both as if nothing overlapped, and synchronisation the
    ring all-reduce of every gradient over all its holders, which hides behind the backward pass.

    All but the last term is a sum over ops and pairs of ops, whose minimum variable elimination
    finds. Synchronisation is counted at several shares of its time, and of the layouts found the one
    with the least time above is kept. If it does not fit `gpu.memory_bytes` by a rough account
    (parameters with gradients and optimizer state, saved activations), memory gets a weight that
    rises until it fits. Where nothing fits, the lowest weight that comes near the least memory is
    kept. Memory is checked exactly after placement.

    Parameters
    ----------
    graph, gpu, cluster, mp, tau_us
        As for `partition`.
    dp
        Replicas, l: gradients are summed over them too.
    prices
        What the network gives the traffic inside a group, and the synchronisation of gradients.
    recompute
        Activations are not saved but made again: only parameters are counted as memory.
    times
        Of this graph, GPU and cluster; None: made here.
    stages
        Pipeline stages: a GPU has to hold one of as many parts of the model.
    gradient_bytes
        Of one parameter's gradient, kept and sent; None: that of its tensor. [bytes]

    Returns
    -------
    Layout
        Named "auto"; `explain` prints its choices.

    Raises
    ------
    ConfigError
        A number is not positive.
    """
    for name, value in (("mp", mp), ("tau_us", tau_us), ("dp", dp)):
        if not (np.isfinite(value) and value > 0):
            raise ConfigError(f"{name} must be positive, got {value}")
    times = times or SliceTimes(graph, gpu, cluster)
    budget = Budget(
        mp=mp, tau_us=tau_us, dp=dp, prices=prices, recompute=recompute, gradient_bytes=gradient_bytes
    )
    return _best(split_costs(graph, times, budget), gpu.memory_bytes * stages).layout()


@frozen(kw_only=True)
class _Weights:
    """What the sums that are minimised count beside compute and traffic."""

    #: Per us of gradient synchronisation. [us]
    sync: float
    #: Per byte of memory. [us]
    memory: float = 0.0

    def unary(self, variable: Variable) -> Table:
        """Return the cost of each cut of one variable but for traffic with others. [cuts] [us]"""
        return (
            variable.compute_us
            + variable.traffic_us
            + self.sync * variable.sync_us
            + self.memory * variable.memory_bytes
        )


@frozen(eq=False)
class _Selection:
    """One cut for every variable, the best with some weights."""

    costs: SplitCosts
    weights: _Weights
    chosen: Sequence[int]

    def _sum(self, table: str) -> float:
        picked = zip(self.costs.variables, self.chosen, strict=True)
        return float(sum(getattr(variable, table)[cut] for variable, cut in picked))

    @property
    def time_us(self) -> float:
        exposed = max(0.0, self._sum("sync_us") - self._sum("backward_us"))
        return self._sum("compute_us") + self._sum("traffic_us") + self._between_us() + exposed

    @property
    def memory_bytes(self) -> float:
        return self._sum("memory_bytes")

    def _between_us(self) -> float:
        return float(sum(t[self.chosen[u], self.chosen[v]] for (u, v), t in self.costs.pairs.items()))

    def layout(self) -> Layout:
        """Return the layout with its reasons; other cuts are compared with the same weights."""
        traffic = [np.zeros(len(variable.cuts)) for variable in self.costs.variables]
        for (u, v), table in self.costs.pairs.items():
            traffic[u] += table[:, self.chosen[v]]
            traffic[v] += table[self.chosen[u], :]
        choices = tuple(self._choice(index, between) for index, between in enumerate(traffic))
        return Layout(name="auto", dims={choice.op: choice.dim for choice in choices}, choices=choices)

    def _choice(self, index: int, between_us: Table) -> Choice:
        variable, chosen = self.costs.variables[index], self.chosen[index]
        cut = variable.cuts[chosen]
        cost_us = self.weights.unary(variable) + between_us
        others = [other for other in range(len(cost_us)) if other != chosen]
        second = min(others, key=lambda other: (cost_us[other], other), default=None)
        return Choice(
            op=variable.op.name,
            dim=cut.dim,
            split=variable.op.splits[cut.dim] if cut.dim is not None else None,
            parts=cut.parts,
            compute_us=float(variable.compute_us[chosen]),
            traffic_us=float(variable.traffic_us[chosen] + between_us[chosen]),
            sync_us=float(variable.sync_us[chosen]),
            runner_up=None if second is None else _describe(variable.cuts[second]),
            runner_up_extra_us=None if second is None else float(cost_us[second] - cost_us[chosen]),
        )


def _describe(cut: Cut) -> str:
    return "whole" if cut.dim is None else f"{cut.dim} / {cut.parts}"


def _best(costs: SplitCosts, memory_bytes: float) -> _Selection:
    synchronised = _solve(costs, [_Weights(sync=weight) for weight in _SYNC_WEIGHTS])
    best = min(synchronised, key=lambda s: s.time_us)
    if best.memory_bytes <= memory_bytes:
        return best
    smaller = _solve(
        costs,
        [_Weights(sync=best.weights.sync, memory=us * 1e-9) for us in _MEMORY_WEIGHTS_US_PER_GB],
    )
    tried = [best, *smaller]
    enough = memory_bytes
    if all(selection.memory_bytes > enough for selection in tried):
        enough = _NEAR_LEAST * min(selection.memory_bytes for selection in tried)
    return next(selection for selection in tried if selection.memory_bytes <= enough)


def _solve(costs: SplitCosts, weights: Sequence[_Weights]) -> list[_Selection]:
    """Return the best cuts with each of some weights; where each op has one cut they are the same for all."""
    if all(len(variable.cuts) == 1 for variable in costs.variables):
        return [_Selection(costs, weights[0], [0] * len(costs.variables))]
    singles = [[each.unary(variable) for variable in costs.variables] for each in weights]
    found = minimise_each(singles, costs.pairs)
    return [_Selection(costs, each, chosen) for each, chosen in zip(weights, found, strict=True)]


def explain(layout: Layout) -> list[dict[str, Any]]:
    """Return one row for each op of a chosen layout: cut, costs in us, and the next best cut.

    Fixed layouts record no costs, only dimensions, and which ops every device does in full.
    """
    if not layout.choices:
        return [
            {"op": op, "dim": dim or "whole", "duplicated": op in layout.duplicated}
            for op, dim in layout.dims.items()
        ]
    return [
        {
            "op": choice.op,
            "dim": choice.dim or "whole",
            "split": choice.split.value if choice.split is not None else "-",
            "parts": choice.parts,
            "compute_us": choice.compute_us,
            "traffic_us": choice.traffic_us,
            "sync_us": choice.sync_us,
            "runner_up": choice.runner_up or "-",
            "runner_up_extra_us": choice.runner_up_extra_us,
        }
        for choice in layout.choices
    ]
