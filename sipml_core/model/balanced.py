"""The balanced computation graph (ops cut into sub-ops) and its placement on one group of GPUs."""

from __future__ import annotations

from functools import cached_property

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import bool_vector, float64_vector, frozen, int32_matrix, int32_vector
from sipml_core.model.opgraph import OpGraph

#: Tensor axes that a region box can have.
MAX_RANK = 6


@frozen(kw_only=True, eq=False)
class BalancedGraph:
    """Sub-ops of about tau, and what travels between them. Op and tensor indices follow `graph`.

    Sub-ops of op o are numbered first[o] .. first[o + 1] - 1, part by part, so their order is
    topological. An edge carries the box of tensor elements that its source holds and its target
    needs (on whatever devices the two end up). A sub-op that sums partial results has one edge
    from each partial, for the same box. Parameters are no edges: they live where they are used.
    """

    graph: OpGraph
    #: Dimension each op is cut along; None: not cut. [ops]
    split_dim: tuple[str | None, ...]
    #: First sub-op of each op, and the total at the end. [ops + 1]
    first: NDArray[np.int32] = attrs.field(converter=int32_vector)
    #: What each sub-op occupies its GPU for, launch included. [sub-ops] [us]
    duration_us: NDArray[np.float64] = attrs.field(converter=float64_vector)

    #: Data edges. [edges]
    edge_src: NDArray[np.int32] = attrs.field(converter=int32_vector)
    edge_dst: NDArray[np.int32] = attrs.field(converter=int32_vector)
    edge_tensor: NDArray[np.int32] = attrs.field(converter=int32_vector)
    #: Box [lo, hi) per axis; unused axes are [0, 1). [edges, MAX_RANK]
    edge_lo: NDArray[np.int32] = attrs.field(converter=int32_matrix)
    edge_hi: NDArray[np.int32] = attrs.field(converter=int32_matrix)

    #: Gradients produced (backward) and consumed (optimizer) per sub-op. [shards]
    #: A gradient box that several sub-ops produce is a partial sum in each of them.
    shard_subop: NDArray[np.int32] = attrs.field(converter=int32_vector)
    shard_tensor: NDArray[np.int32] = attrs.field(converter=int32_vector)
    shard_lo: NDArray[np.int32] = attrs.field(converter=int32_matrix)
    shard_hi: NDArray[np.int32] = attrs.field(converter=int32_matrix)

    #: Ops that every device does in full, although the result of each sub-op is a part; a gradient box
    #: that such sub-ops make is the whole sum in each of them. None unless given. [ops]
    duplicated: NDArray[np.bool_] = attrs.field(
        converter=bool_vector,
        default=attrs.Factory(lambda self: np.zeros(len(self.graph.ops)), takes_self=True),
    )

    @property
    def subops(self) -> int:
        return int(self.first[-1])

    @property
    def parts(self) -> NDArray[np.int32]:
        """Sub-ops of each op. [ops]"""
        return np.diff(self.first)

    @cached_property
    def tensor_shape(self) -> NDArray[np.int64]:
        """Size of each tensor along each axis; an axis that it lacks has one position. [tensors, MAX_RANK]"""
        lacking = (1,) * MAX_RANK
        shapes = [(*t.shape, *lacking[len(t.shape) :]) for t in self.graph.tensors]
        return np.array(shapes, dtype=np.int64).reshape(-1, MAX_RANK)

    @cached_property
    def subop_op(self) -> NDArray[np.int32]:
        """The op each sub-op is a part of. [sub-ops]"""
        return np.repeat(np.arange(len(self.first) - 1, dtype=np.int32), self.parts)


@frozen(kw_only=True)
class PlacementLimits:
    """What the interconnect allows a group of k = `devices` GPUs (paper, Algorithm 1).

    Devices i != j may talk if their distance on a circle of k is at most `range_hops`.
    None: any pair may (electrical networks, or a degree that covers the whole group).
    """

    devices: int
    range_hops: int | None = None

    def allows(self, a: int, b: int) -> bool:
        if a == b or self.range_hops is None:
            return True
        distance = (a - b) % self.devices
        return min(distance, self.devices - distance) <= self.range_hops


@frozen(kw_only=True, eq=False)
class Placement:
    """A device of the replica, 0 .. devices - 1, for every sub-op.

    Device d of stage s, a group of `limits.devices`, is number s x `limits.devices` + d.
    """

    graph: BalancedGraph
    #: Of each stage.
    limits: PlacementLimits
    device: NDArray[np.int32] = attrs.field(converter=int32_vector)
    #: Pipeline stages.
    stages: int = 1
    #: Contiguous part of the model that each op belongs to; part c is on stage c mod `stages`. [ops]
    part: NDArray[np.int32] = attrs.field(
        converter=int32_vector,
        default=attrs.Factory(lambda self: np.zeros(len(self.graph.graph.ops)), takes_self=True),
    )
    #: False: the relocation bound was reached and the fallback placement is returned.
    converged: bool = True
    #: Sub-ops moved while repairing violated limits.
    relocations: int = 0

    @property
    def devices(self) -> int:
        """Devices of all stages."""
        return self.limits.devices * self.stages

    @property
    def parts(self) -> int:
        """Contiguous parts of the model."""
        return int(self.part.max(initial=0)) + 1

    def stage_devices(self, op: int) -> NDArray[np.int32]:
        """Devices of the stage that an op is on. [limits.devices]"""
        first = int(self.part[op]) % self.stages * self.limits.devices
        return np.arange(first, first + self.limits.devices, dtype=np.int32)
