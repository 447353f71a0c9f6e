"""Writes the forward half of a training step, op by op; `backward.training_step` adds the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from sipml_core.errors import ConfigError
from sipml_core.fields import frozen
from sipml_core.model import Axis, Exchanged, Op, Operand, Phase, Precision, Role, Split, Tensor, precision

#: One axis of an operand: a dimension of the op, "*" for the whole axis, or an `Axis`.
AxisSpec = str | Axis
#: Axes of an operand: "n s h", or a sequence where an axis needs an `Axis`.
Axes = str | Sequence[AxisSpec]


@frozen(kw_only=True)
class Forward:
    """A forward op, and what its gradients need."""

    op: Op
    #: Inputs that are multiplied: the gradient of one reads the others, at the op's FLOPs each.
    factors: tuple[str, ...]
    #: Tensors every gradient of this op reads besides.
    saved: tuple[str, ...]
    #: Inputs whose gradient is the output's gradient itself (an addition): no kernel.
    passes: tuple[str, ...]
    #: Outputs that carry no gradient: masks, indices, statistics.
    kept: tuple[str, ...]
    #: FLOPs of the gradient of its activations, in those of the op; None: once for each factor.
    gradient_cost: float | None = None


class GraphBuilder:
    """Collects tensors and forward ops of one model for a batch of `samples`.

    Parameters
    ----------
    name, samples
        Of the graph.
    precision_name
        A key of `PRECISIONS`: element sizes by role.
    """

    def __init__(self, name: str, samples: int, precision_name: str) -> None:
        if samples < 1:
            raise ConfigError(f"{name}: samples must be at least 1, got {samples}")
        self.name = name
        self.samples = samples
        self.precision: Precision = precision(precision_name)
        self.tensors: dict[str, Tensor] = {}
        self.forwards: list[Forward] = []
        #: As in `OpGraph`.
        self.expert_shares: dict[str, tuple[float, ...]] = {}

    def input(self, name: str, shape: tuple[int, ...], element_bytes: int | None = None) -> str:
        """What the data loader brings; it has no gradient."""
        return self.add(name, shape, Role.INPUT, element_bytes or self.precision.activation_bytes)

    def parameter(self, name: str, shape: tuple[int, ...], routing: str | None = None) -> str:
        """A trained tensor; with `routing`, of the experts of that layer."""
        return self.add(name, shape, Role.PARAMETER, self.precision.parameter_bytes, routing=routing)

    def add(
        self,
        name: str,
        shape: tuple[int, ...],
        role: Role,
        element_bytes: int,
        parameter: str | None = None,
        exchanged: Exchanged | None = None,
        routing: str | None = None,
    ) -> str:
        """A tensor of any role; returns its name."""
        if name in self.tensors:
            raise ConfigError(f"{self.name}: tensor {name!r} is defined twice")
        self.tensors[name] = Tensor(
            name=name,
            shape=shape,
            role=role,
            element_bytes=element_bytes,
            parameter=parameter,
            exchanged=exchanged,
            routing=routing,
        )
        return name

    def op(
        self,
        name: str,
        kind: str,
        dims: Mapping[str, int],
        splits: Mapping[str, Split],
        *,
        flops: float,
        reads: Mapping[str, Axes],
        writes: Mapping[str, str],
        factors: Sequence[str] = (),
        saved: Sequence[str] = (),
        passes: Sequence[str] = (),
        kept: Mapping[str, int] | None = None,
        gradient_cost: float | None = None,
        exchanged: Exchanged | None = None,
        routing: str | None = None,
    ) -> None:
        """A forward op.

        Parameters
        ----------
        dims, splits, flops
            As in `Op`.
        reads
            Existing tensors, with their axes in terms of `dims`.
        writes
            New activations: the dimensions of each, which give its shape.
        factors, saved, passes, gradient_cost
            As in `Forward`. `saved` may name tensors read or written here.
        kept
            Written tensors that carry no gradient, with the bytes of one element.
        exchanged, routing
            Of the tensors that it writes; where nothing is exchanged, `routing` is that of the op.
        """
        kept = kept or {}
        for tensor, axes in writes.items():
            shape = tuple([dims[axis] for axis in axes.split()])
            element_bytes = kept.get(tensor, self.precision.activation_bytes)
            self.add(
                tensor,
                shape,
                Role.ACTIVATION,
                element_bytes,
                exchanged=exchanged,
                routing=exchanged and routing,
            )
        self.forwards.append(
            Forward(
                op=Op(
                    name=name,
                    kind=kind,
                    phase=Phase.FORWARD,
                    dims=dims,
                    splits=splits,
                    flops=flops,
                    reads=tuple(operand(tensor, axes) for tensor, axes in reads.items()),
                    writes=tuple(operand(tensor, axes) for tensor, axes in writes.items()),
                    routing=None if exchanged is Exchanged.TO_EXPERTS else routing,
                ),
                factors=tuple(factors),
                saved=tuple(saved),
                passes=tuple(passes),
                kept=tuple(kept),
                gradient_cost=gradient_cost,
            )
        )

    def shape(self, tensor: str) -> tuple[int, ...]:
        return self.tensors[tensor].shape


def operand(tensor: str, axes: Axes) -> Operand:
    """An operand from the short form of its axes."""
    return Operand(tensor, _named_axes(axes) if isinstance(axes, str) else tuple(map(_axis, axes)))


@cache
def _named_axes(axes: str) -> tuple[Axis, ...]:
    """Return the axes of a short form, always the same object: a model has few of them."""
    return tuple(_axis(axis) for axis in axes.split())


def _axis(axis: AxisSpec) -> Axis:
    if isinstance(axis, Axis):
        return axis
    return plain_axis(None if axis == "*" else axis)


@cache
def plain_axis(dim: str | None) -> Axis:
    """Return the axis that follows a dimension one to one (None: the whole axis), always the same object."""
    return Axis(dim)
