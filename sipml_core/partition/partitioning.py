"""From the operation graph to the balanced graph: sub-ops of about tau (paper, section 3.2, i)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError
from sipml_core.fields import frozen
from sipml_core.model import MAX_RANK, BalancedGraph, Cluster, Op, Operand, OpGraph, Phase, Role
from sipml_core.partition.layouts import Layout, checked_dims, checked_duplicates, leader_index, leads
from sipml_core.partition.overlap import Boxes, BoxKey, OverlapRule, box_key
from sipml_core.partition.slices import SliceTimes
from sipml_core.plugin import GpuModel


@frozen
class Cut:
    """How one op is divided. `parts` > 1 with no `dim`: every part does the whole op (a replica)."""

    dim: str | None
    parts: int

    @property
    def replicated(self) -> bool:
        return self.dim is None and self.parts > 1


WHOLE = Cut(None, 1)


def parts_for(time_us: float, tau_us: float, mp: int, extent: int) -> int:
    """Return how many equal parts take about tau: the nearest number, at most one per device or iteration."""
    return max(1, min(math.floor(time_us / tau_us + 0.5), mp, extent))


def own_cut(op: Op, dim: str | None, time_us: float, *, mp: int, tau_us: float) -> Cut:
    """Return how an op that follows none is cut along `dim`."""
    if dim is None:
        return WHOLE
    parts = parts_for(time_us, tau_us, mp, op.dims[dim])
    return Cut(dim, parts) if parts > 1 else WHOLE


def following_cut(op: Op, leader: Cut, *, duplicated: bool = False) -> Cut:
    """Return how an op is cut that follows one cut as `leader`.

    Part p then needs what part p of the leader holds. An optimizer op that lacks the dimension
    updates parameters that every part keeps a copy of, so it is repeated beside each, and so is that
    of a duplicated op; any other op that lacks it stays whole.
    """
    copies = op.phase is Phase.OPTIMIZER
    if leader.dim is None or leader.dim not in op.dims or (duplicated and copies):
        return Cut(None, leader.parts) if copies else WHOLE
    parts = min(leader.parts, op.dims[leader.dim])
    return Cut(leader.dim, parts) if parts > 1 else WHOLE


def partition(
    graph: OpGraph,
    gpu: GpuModel,
    cluster: Cluster,
    *,
    mp: int,
    tau_us: float,
    layout: Layout | Mapping[str, str | None] | None = None,
    times: SliceTimes | None = None,
) -> BalancedGraph:
    """Cut every op into equal sub-ops of about `tau_us`, at most `mp` of them.

    An op that the layout duplicates has a sub-op on every device where its extent allows it, each of
    which takes as long as the whole op. Under a layout that is on all devices every op has one there, too,
    which takes as long as its slice.

    Parameters
    ----------
    graph
        One training step on one replica.
    gpu, cluster
        Give the time of every slice: kernel time, minimum and launch.
    mp
        Devices of a group, k. With 1, every op stays whole.
    tau_us
        Compute time that a sub-op aims at. [us]
    layout
        Split dimension of the forward ops; see `sipml_core.partition.splits.choose_splits`.
        Ops it leaves out are cut along the batch where they can be.
    times
        Of this graph, GPU and cluster; None: made here.

    Returns
    -------
    BalancedGraph
        Sub-ops with durations, data edges by the overlap rule, gradient shards.

    Raises
    ------
    ConfigError
        `mp` or `tau_us` is not positive, the layout does not fit the graph, or a tensor has more
        than `MAX_RANK` axes.
    """
    if mp < 1:
        raise ConfigError(f"mp must be at least 1, got {mp}")
    if not (math.isfinite(tau_us) and tau_us > 0):
        raise ConfigError(f"tau_us must be positive, got {tau_us}")
    for tensor in graph.tensors:
        if len(tensor.shape) > MAX_RANK:
            raise ConfigError(f"tensor {tensor.name!r} has {len(tensor.shape)} axes, at most {MAX_RANK}")
    times = times or SliceTimes(graph, gpu, cluster)
    names = checked_duplicates(graph, layout) if mp > 1 else frozenset()
    duplicated = np.array([graph.ops[op].name in names for op in leader_index(graph)], dtype=np.bool_)
    everywhere = isinstance(layout, Layout) and layout.on_all_devices
    in_all = frozenset(op.name for op in graph.ops if leads(op)) if everywhere else names
    cuts = _cuts(graph, times, checked_dims(graph, layout), names, in_all, mp=mp, tau_us=tau_us)
    first = np.concatenate(([0], np.cumsum([cut.parts for cut in cuts])))
    edges, shards = _Rows(), _Rows()
    _collect(graph, cuts, duplicated, first, times, edges, shards)
    (edge_src, edge_dst, edge_tensor), (edge_lo, edge_hi) = edges.columns(), edges.boxes()
    (_, shard_subop, shard_tensor), (shard_lo, shard_hi) = shards.columns(), shards.boxes()
    duration = [
        _durations(times, op, cut, in_full)
        for op, cut, in_full in zip(graph.ops, cuts, duplicated, strict=True)
    ]
    return BalancedGraph(
        graph=graph,
        split_dim=tuple(cut.dim for cut in cuts),
        duplicated=duplicated,
        first=first,
        duration_us=np.concatenate(duration) if duration else np.empty(0),
        edge_src=edge_src,
        edge_dst=edge_dst,
        edge_tensor=edge_tensor,
        edge_lo=edge_lo,
        edge_hi=edge_hi,
        shard_subop=shard_subop,
        shard_tensor=shard_tensor,
        shard_lo=shard_lo,
        shard_hi=shard_hi,
    )


def _cuts(
    graph: OpGraph,
    times: SliceTimes,
    dims: Mapping[str, str | None],
    duplicated: frozenset[str],
    in_all: frozenset[str],
    *,
    mp: int,
    tau_us: float,
) -> list[Cut]:
    """Return how each op is cut; ops of `in_all` into as many parts as there are devices."""
    cuts: dict[str, Cut] = {}

    def cut_of(op: Op) -> Cut:
        if op.name not in cuts:
            dim = dims.get(op.name)
            if not leads(op):
                leader = graph.op[op.follows or ""]
                cuts[op.name] = following_cut(op, cut_of(leader), duplicated=leader.name in duplicated)
            elif dim is not None and op.name in in_all:
                parts = min(mp, op.dims[dim])
                cuts[op.name] = Cut(dim, parts) if parts > 1 else WHOLE
            else:
                whole_us = 0.0 if mp == 1 else times.kernel_us(op)
                cuts[op.name] = own_cut(op, dim, whole_us, mp=mp, tau_us=tau_us)
        return cuts[op.name]

    return [cut_of(op) for op in graph.ops]


def _durations(times: SliceTimes, op: Op, cut: Cut, duplicated: bool) -> NDArray[np.float64]:
    if cut.replicated or duplicated:
        return np.repeat(times.durations_us(op, None, 1), cut.parts)
    return times.durations_us(op, cut.dim, cut.parts)


class _Rows:
    """Edges or shards as they are found: (source, target, tensor) and a box, in blocks.

    Equal layers have the same arrays of parts and boxes, which are kept as they are until all are joined.
    """

    def __init__(self) -> None:
        self._src: list[NDArray[np.int64]] = [np.empty(0, dtype=np.int64)]
        self._dst: list[NDArray[np.int64]] = [np.empty(0, dtype=np.int64)]
        #: What is added to sources and targets, and the tensor, of each block; its rows.
        self._ids: list[tuple[int, int, int]] = [(0, 0, 0)]
        self._boxes: list[NDArray[np.int32]] = [np.empty((2, 0, MAX_RANK), dtype=np.int32)]

    def add(
        self,
        src: NDArray[np.int64],
        dst: NDArray[np.int64],
        ids: tuple[int, int, int],
        boxes: NDArray[np.int32],
    ) -> None:
        """Add a block: `ids` are the sub-ops that parts `src` and `dst` count from, and the tensor."""
        self._src.append(src)
        self._dst.append(dst)
        self._ids.append(ids)
        self._boxes.append(boxes)

    def columns(self) -> NDArray[np.int32]:
        """Return source, target and tensor of each row. [3, rows]"""
        rows = [len(block) for block in self._src]
        columns = np.repeat(np.array(self._ids).T, rows, axis=1)
        columns[0] += np.concatenate(self._src)
        columns[1] += np.concatenate(self._dst)
        return columns.astype(np.int32)

    def boxes(self) -> NDArray[np.int32]:
        """Return lower and upper corners of each row. [2, rows, MAX_RANK]"""
        return np.concatenate(self._boxes, axis=1)


class _OpBoxes(NamedTuple):
    """Boxes of the operands of an op, each with the operand's place; equal operands are read once."""

    #: Gradients, which it reads or writes, by their place in ``(*reads, *writes)``.
    gradients: list[tuple[int, Boxes]]
    #: Activations, by their place in ``reads`` and in ``writes``.
    reads: list[tuple[int, BoxKey]]
    writes: list[tuple[int, BoxKey]]

    @classmethod
    def of(cls, graph: OpGraph, op: Op, cut: Cut, in_full: bool, rule: OverlapRule) -> _OpBoxes:
        """Return the boxes of an op under a cut; one that is done in full makes whole gradients."""

        def key(operand: Operand, dim: str | None) -> BoxKey:
            return box_key(op, operand, graph.tensor[operand.tensor].shape, dim, cut.parts)

        def has_role(operand: Operand, role: Role) -> bool:
            return graph.tensor[operand.tensor].role is role

        places: dict[Operand, int] = {}
        for place, operand in enumerate((*op.reads, *op.writes)):
            places.setdefault(operand, place)
        return cls(
            [
                (place, rule.boxes(key(operand, None if in_full else cut.dim)))
                for operand, place in places.items()
                if has_role(operand, Role.GRADIENT)
            ],
            [
                (place, key(operand, cut.dim))
                for operand, place in places.items()
                if has_role(operand, Role.ACTIVATION) and place < len(op.reads)
            ],
            [
                (place, key(operand, cut.dim))
                for place, operand in enumerate(op.writes)
                if has_role(operand, Role.ACTIVATION)
            ],
        )


def _collect(
    graph: OpGraph,
    cuts: list[Cut],
    duplicated: NDArray[np.bool_],
    first: NDArray[np.int64],
    times: SliceTimes,
    edges: _Rows,
    shards: _Rows,
) -> None:
    """Find all data edges and gradient shards, consumer by consumer."""
    rule, alike = times.rule, times.alike
    tensor_index = {tensor.name: index for index, tensor in enumerate(graph.tensors)}
    # First sub-op of the op that writes each activation, and the boxes that its parts hold.
    held: dict[str, tuple[int, BoxKey]] = {}
    # By what an op is like and how it is cut.
    known: dict[tuple[int, str | None, int, bool], _OpBoxes] = {}
    starts = first[:-1].tolist()
    for op, cut, in_full, start in zip(graph.ops, cuts, duplicated.tolist(), starts, strict=True):
        kind = alike.number(op), cut.dim, cut.parts, in_full
        if kind not in known:
            known[kind] = _OpBoxes.of(graph, op, cut, in_full, rule)
        gradients, reads, writes = known[kind]

        for place, found in gradients:
            tensor = (*op.reads, *op.writes)[place].tensor
            part = np.arange(cut.parts)
            shards.add(part, part, (0, start, tensor_index[tensor]), found.padded)

        for place, key in reads:
            tensor = op.reads[place].tensor
            if tensor in held:
                source, source_key = held[tensor]
                met = rule.overlap(source_key, key)
                edges.add(met.src, met.dst, (source, start, tensor_index[tensor]), met.padded)

        for place, key in writes:
            held[op.writes[place].tensor] = start, key
