"""How long each slice of an op occupies a GPU."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sipml_core.model import Cluster, Op, OpGraph, op_work
from sipml_core.partition.alike import AlikeOps
from sipml_core.partition.overlap import OverlapRule, box_key, part_bounds
from sipml_core.plugin import GpuModel

_Kinds: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]
_ONE_PART = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)


class SliceTimes:
    """Times of the slices of one graph's ops on one kind of GPU.

    Slices whose boxes have equal sizes do equal work, so the GPU model is asked once for each kind
    of slice: for the larger and the smaller ones, and for those at a border where a halo is clipped.
    What was asked once is kept, for other layouts and degrees of the same graph too.
    """

    def __init__(self, graph: OpGraph, gpu: GpuModel, cluster: Cluster) -> None:
        self.alike = AlikeOps(graph)
        #: Boxes and overlaps of the graph's ops, kept by shape.
        self.rule = OverlapRule()
        self._graph, self._gpu, self._cluster = graph, gpu, cluster
        self._kernel_us: dict[Hashable, float] = {}
        self._kinds: dict[Hashable, _Kinds] = {}
        self._durations: dict[Hashable, NDArray[np.float64]] = {}

    def subject(self, op: Op) -> Hashable:
        """Return what the times of an op depend on: its name, or what it has in common with its like."""
        return op.name if self._gpu.names_matter else self.alike.number(op)

    def kernel_us(self, op: Op) -> float:
        """Return the whole op's time on one GPU, launch not included. [us]"""
        subject = self.subject(op)
        if subject not in self._kernel_us:
            self._kernel_us[subject] = self._gpu.op_time_us(op_work(self._graph, op, None, 1, 0))
        return self._kernel_us[subject]

    def durations_us(self, op: Op, dim: str | None, parts: int) -> NDArray[np.float64]:
        """Return what each of `parts` slices along `dim` occupies its GPU for. [parts] [us]"""
        key = (self.subject(op), dim, parts)
        if key not in self._durations:
            examples, kind = self._slice_kinds(op, dim, parts)
            works = [op_work(self._graph, op, dim, parts, int(part)) for part in examples]
            times = [self._cluster.duration_us(self._gpu.op_time_us(work)) for work in works]
            self._durations[key] = np.array(times)[kind]
        return self._durations[key]

    def _slice_kinds(self, op: Op, dim: str | None, parts: int) -> _Kinds:
        """Return a part of each kind, and the kind of each part. [kinds], [parts]"""
        if parts == 1:
            return _ONE_PART
        key = (self.alike.number(op), dim, parts)
        if key not in self._kinds:
            tensor = self._graph.tensor
            start, stop = part_bounds(op.dims[dim] if dim is not None else 1, parts)
            found = [
                self.rule.boxes(box_key(op, o, tensor[o.tensor].shape, dim, parts))
                for o in (*op.reads, *op.writes)
            ]
            # Sizes of each part's slice and of its boxes. [parts, 1 + axes]
            sizes = np.column_stack([stop - start, *(b.hi - b.lo for b in found)])
            _, examples, kind = np.unique(sizes, axis=0, return_index=True, return_inverse=True)
            self._kinds[key] = examples, kind.reshape(-1)
        return self._kinds[key]
