"""The operation graph G = (V, E) of one training step (paper, section 3.2).

Every op runs over named dimensions, its *iteration space*, as in an einsum: a matrix product has
`n` (samples), `i` (contracted) and `o` (produced). Each operand says how its tensor's axes follow
those dimensions. That one description yields FLOPs and bytes of any slice of the op, and, for any
two splits, the elements one sub-op holds and another needs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property

import attrs

from sipml_core.errors import ConfigError, InfeasibleError
from sipml_core.fields import at_least, between, frozen

#: Samples in one batch.
MAX_SAMPLES = 2**30
#: Along one axis of a tensor, and in all of it: elements are counted in 32-bit and 64-bit integers, and in
#: float64 of 53 digits, and a few thousand such counts are added up.
MAX_EXTENT = 2**31 - 1
MAX_ELEMENTS = 2**50


class Role(StrEnum):
    """What a tensor is: decides its precision, whether it travels, and what memory it takes."""

    INPUT = "input"
    ACTIVATION = "activation"
    PARAMETER = "parameter"
    #: Gradient of a parameter: synchronised over replicas.
    GRADIENT = "gradient"


class Phase(StrEnum):
    """The part of a training step that an op belongs to."""

    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"


class Split(StrEnum):
    """Ways to divide an op; ROW leaves partial sums to be added."""

    SAMPLE = "sample"
    SPATIAL = "spatial"
    COLUMN = "column"
    ROW = "row"
    HEAD = "head"


class Exchanged(StrEnum):
    """What replicas do with their parts of a tensor between the op that writes it and those that read it."""

    #: Rows go to the replicas that have their experts, and come back.
    TO_EXPERTS = "to experts"
    FROM_EXPERTS = "from experts"
    #: Each gets the parts of all that share a sequence, for each pass; what each made for others is added up.
    GATHER = "gather"
    SCATTER = "scatter"

    @property
    def opposite(self) -> Exchanged:
        """What is done with the gradient."""
        pairs = {
            Exchanged.TO_EXPERTS: Exchanged.FROM_EXPERTS,
            Exchanged.FROM_EXPERTS: Exchanged.TO_EXPERTS,
            Exchanged.GATHER: Exchanged.SCATTER,
            Exchanged.SCATTER: Exchanged.GATHER,
        }
        return pairs[self]


@frozen(kw_only=True)
class Tensor:
    """A dense tensor of the whole local batch; `InfeasibleError` if its elements cannot be counted."""

    name: str
    shape: tuple[int, ...]
    role: Role
    #: Bytes of one element at the job's precision.
    element_bytes: int
    #: For a gradient: the parameter it belongs to.
    parameter: str | None = None
    #: What replicas do with it; None: it stays where it is.
    exchanged: Exchanged | None = None
    #: Layer of experts that its rows go to, or that it is a parameter of, see `OpGraph.expert_shares`.
    routing: str | None = None

    def __attrs_post_init__(self) -> None:
        if max(self.shape, default=1) > MAX_EXTENT or self.elements > MAX_ELEMENTS:
            raise InfeasibleError(
                f"tensor {self.name!r} has {' x '.join(map(str, self.shape))} elements, more than can be "
                f"counted: {MAX_EXTENT} along an axis, {MAX_ELEMENTS:g} in all; raise dp, lower the batch or "
                "use a smaller model"
            )

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        return self.elements * self.element_bytes


@attrs.frozen(cache_hash=True)
class Axis:
    """How one tensor axis follows an op dimension.

    Iterations [a, b) of `dim` touch tensor positions
    [floor((a num + low) / den), floor(((b - 1) num + high) / den) + 1), clipped to the tensor.
    A convolution of kernel r, stride s and padding p reads (num=s, low=-p, high=r-1-p).
    `dim` None touches the whole axis.
    """

    dim: str | None
    num: int = 1
    den: int = 1
    low: int = 0
    high: int = 0

    def region(self, start: int, stop: int, size: int) -> tuple[int, int]:
        """Positions [lo, hi) touched by iterations [start, stop), clipped to [0, size)."""
        if self.dim is None:
            return 0, size
        lo = (start * self.num + self.low) // self.den
        hi = ((stop - 1) * self.num + self.high) // self.den + 1
        return min(max(lo, 0), size), min(max(hi, 0), size)


@attrs.frozen(cache_hash=True)
class Operand:
    """A tensor that an op reads or writes, axis by axis."""

    tensor: str
    axes: tuple[Axis, ...]

    def region(
        self, shape: tuple[int, ...], ranges: Mapping[str, tuple[int, int]]
    ) -> tuple[tuple[int, int], ...]:
        """The box of the tensor that iterations `ranges` (dim -> [start, stop)) touch."""
        return tuple(
            axis.region(*(ranges[axis.dim] if axis.dim else (0, 1)), size)
            for axis, size in zip(self.axes, shape, strict=True)
        )


def _dims(value: Mapping[str, int]) -> Mapping[str, int]:
    return dict(value)


def _splits(value: Mapping[str, Split]) -> Mapping[str, Split]:
    return dict(value)


@frozen(kw_only=True)
class Op:
    """One kernel-sized operation."""

    name: str
    #: Class of kernel: what a GPU model's efficiency table is keyed by, e.g. "conv", "matmul".
    kind: str
    phase: Phase
    #: Iteration space: dimension -> extent.
    dims: Mapping[str, int] = attrs.field(converter=_dims)
    #: Dimensions along which the op may be divided, and what such a division is called.
    splits: Mapping[str, Split] = attrs.field(converter=_splits)
    #: Floating-point operations of the whole op (a multiply-add counts 2).
    flops: float = attrs.field(validator=at_least(0))
    reads: tuple[Operand, ...]
    writes: tuple[Operand, ...]
    #: Forward op whose split and devices this op takes (backward and optimizer ops).
    follows: str | None = None
    #: Layer of experts whose rows it works on, see `OpGraph.expert_shares`; None: its own tokens.
    routing: str | None = None

    @property
    def ranges(self) -> dict[str, tuple[int, int]]:
        """The whole iteration space."""
        return {dim: (0, extent) for dim, extent in self.dims.items()}

    def part_ranges(self, dim: str | None, parts: int, part: int) -> dict[str, tuple[int, int]]:
        """Iterations of one of `parts` equal slices along `dim` (the larger ones first)."""
        ranges = self.ranges
        if dim is None or parts == 1:
            return ranges
        base, extra = divmod(self.dims[dim], parts)
        start = part * base + min(part, extra)
        ranges[dim] = (start, start + base + (part < extra))
        return ranges


@frozen(kw_only=True, eq=False)
class OpGraph:
    """Ops of one training step on one model replica, in topological order.

    Raises
    ------
    ConfigError
        A name is used twice, an operand names no tensor or has the wrong rank, a tensor is
        read before it is written.
    """

    name: str
    #: Samples in the batch the tensors are sized for.
    samples: int = attrs.field(validator=between(1, MAX_SAMPLES))
    precision: str
    tensors: tuple[Tensor, ...]
    ops: tuple[Op, ...]
    #: Of each layer of experts that are spread: which part of all rows goes to those of each replica.
    expert_shares: Mapping[str, tuple[float, ...]] = attrs.field(factory=dict)

    @cached_property
    def tensor(self) -> dict[str, Tensor]:
        return {tensor.name: tensor for tensor in self.tensors}

    @cached_property
    def op(self) -> dict[str, Op]:
        return {op.name: op for op in self.ops}

    @cached_property
    def producer(self) -> dict[str, str]:
        """Tensor -> the op that writes it (tensors no op writes are inputs and parameters)."""
        return {operand.tensor: op.name for op in self.ops for operand in op.writes}

    @property
    def parameter_elements(self) -> int:
        return sum(t.elements for t in self.tensors if t.role is Role.PARAMETER)

    @property
    def parameter_bytes(self) -> int:
        return sum(t.size_bytes for t in self.tensors if t.role is Role.PARAMETER)

    def flops(self, phase: Phase | None = None) -> float:
        return sum(op.flops for op in self.ops if phase in (None, op.phase))

    def __attrs_post_init__(self) -> None:
        if len(self.tensor) != len(self.tensors) or len(self.op) != len(self.ops):
            raise ConfigError(f"graph {self.name!r}: an op or tensor name is used twice")
        written: set[str] = set()
        for op in self.ops:
            self._check_op(op, written)
            for operand in op.writes:
                written.add(operand.tensor)

    def _check_op(self, op: Op, written: set[str]) -> None:
        tensors, producer, dims = self.tensor, self.producer, op.dims
        for operand in (*op.reads, *op.writes):
            tensor = tensors.get(operand.tensor)
            if tensor is None or len(operand.axes) != len(tensor.shape):
                raise ConfigError(f"op {op.name!r}: operand {operand.tensor!r} names no tensor of that rank")
            for axis in operand.axes:
                dim = axis.dim
                if dim is not None and dim not in dims:
                    raise ConfigError(
                        f"op {op.name!r}: operand {operand.tensor!r} uses a dimension the op lacks"
                    )
        for operand in op.reads:
            if operand.tensor not in written and operand.tensor in producer:
                raise ConfigError(f"op {op.name!r} reads {operand.tensor!r} before it is written")
        if op.follows is not None and op.follows not in self.op:
            raise ConfigError(f"op {op.name!r} follows {op.follows!r}, which is not in the graph")
