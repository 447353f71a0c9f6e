"""One derivation of backward and optimizer ops for every model.

For a forward op y = f(x, w) the backward pass needs dx ("data" gradient) and dw ("weight"
gradient). They are separate ops, so that dw can be synchronised while the backward pass goes on.
Both run over the dimensions of the forward op under the same names, so a split of the forward op is
a split of its followers: a dimension that the written gradient does not follow is summed over, and
a cut along it leaves partial sums. An optimizer op has those dimensions that the parameters follow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from sipml_core.errors import ConfigError
from sipml_core.model import Axis, Op, Operand, OpGraph, Phase, Role, Split
from sipml_core.workloads.builder import Forward, GraphBuilder, plain_axis

#: Adam on one parameter: two moment updates (3 and 4 operations), then square root, addition,
#: division, scaling and subtraction (Kingma & Ba 2015, algorithm 1, bias correction in the rate).
ADAM_FLOPS = 12


def training_step(builder: GraphBuilder) -> OpGraph:
    """The whole training step: forward, backward in reverse order, then the optimizer.

    Raises
    ------
    ConfigError
        Nothing reads an op's output, so it has no gradient, or the gradient cannot be described by
        the op's operands.
    """
    backward = _Backward(builder)
    for forward in reversed(builder.forwards):
        backward.differentiate(forward)
    return OpGraph(
        name=builder.name,
        samples=builder.samples,
        precision=builder.precision.name,
        tensors=tuple(builder.tensors.values()),
        ops=(*(forward.op for forward in builder.forwards), *backward.ops, *backward.optimizers()),
        expert_shares=builder.expert_shares,
    )


class _Backward:
    def __init__(self, builder: GraphBuilder) -> None:
        self.builder = builder
        self.ops: list[Op] = []
        #: Masks, indices, statistics: nothing learns from them.
        self.without_gradient = {tensor for forward in builder.forwards for tensor in forward.kept}
        #: Tensor -> gradients that its readers have contributed so far.
        self.contributions: dict[str, list[str]] = defaultdict(list)
        #: Parameter -> its gradient tensors, one for each op that uses it.
        self.parameter_gradients: dict[str, list[str]] = defaultdict(list)

    def differentiate(self, forward: Forward) -> None:
        """Append the gradient ops of one forward op; its readers have been done."""
        op = forward.op
        incoming = self._incoming(forward)
        for tensor in forward.passes:
            self.contributions[tensor] += [operand.tensor for operand in incoming]
        without = self.without_gradient.union(forward.passes)
        activations = [o for o in self._reads(op, Role.ACTIVATION) if o.tensor not in without]
        if activations:
            self._gradient_op(forward, incoming, activations, "data")
        parameters = self._reads(op, Role.PARAMETER)
        if parameters:
            self._gradient_op(forward, incoming, parameters, "weight")

    def optimizers(self) -> Iterable[Op]:
        """One op for each forward op that has parameters, in the order gradients become ready.

        A parameter that two ops use is updated where each of them lives, from the sum of both
        gradients.
        """
        for forward in reversed(self.builder.forwards):
            parameters = self._reads(forward.op, Role.PARAMETER)
            if parameters:
                yield self._optimizer(forward.op, parameters)

    def _optimizer(self, op: Op, parameters: list[Operand]) -> Op:
        gradients = (
            Operand(gradient, parameter.axes)
            for parameter in parameters
            for gradient in self.parameter_gradients[parameter.tensor]
        )
        dims = _dims_of(op, parameters)
        return Op(
            name=f"{op.name}.optimizer",
            kind="optimizer",
            phase=Phase.OPTIMIZER,
            dims=dims,
            splits=_splits_along(op, dims),
            flops=ADAM_FLOPS * sum(self._elements(operand) for operand in parameters),
            reads=(*parameters, *gradients),
            writes=(),
            follows=op.name,
        )

    def _incoming(self, forward: Forward) -> list[Operand]:
        """Gradients of the op's outputs, each summed over its readers first."""
        outputs = [output for output in forward.op.writes if output.tensor not in forward.kept]
        used = [output for output in outputs if self.contributions[output.tensor]]
        if outputs and not used:
            raise ConfigError(f"op {forward.op.name!r}: nothing reads its output, so it has no gradient")
        return [Operand(self._summed(forward.op, output), output.axes) for output in used]

    def _summed(self, producer: Op, output: Operand) -> str:
        parts = self.contributions[output.tensor]
        if len(parts) == 1:
            return parts[0]
        dims = _dims_of(producer, [output])
        total = self._add_like(output.tensor, f"{output.tensor}.grad")
        self.ops.append(
            Op(
                name=f"{output.tensor}.sum",
                kind="elementwise",
                phase=Phase.BACKWARD,
                dims=dims,
                splits=_splits_along(producer, dims),
                flops=(len(parts) - 1) * self._elements(output),
                reads=tuple(Operand(part, output.axes) for part in parts),
                writes=(Operand(total, output.axes),),
                follows=producer.name,
            )
        )
        return total

    def _gradient_op(
        self, forward: Forward, incoming: list[Operand], targets: list[Operand], what: str
    ) -> None:
        op = forward.op
        names = {target.tensor for target in targets}
        multiplied = [name for name in forward.factors if name in names]
        needed = {name for name in forward.factors if name not in names or len(multiplied) > 1}
        needed.update(forward.saved)
        operands = [*incoming, *(o for o in (*op.reads, *op.writes) if o.tensor in needed)]
        dims, reads = _over_targets(op, targets, operands, self.builder)
        self.ops.append(
            Op(
                name=f"{op.name}.{what}",
                kind=op.kind,
                phase=Phase.BACKWARD,
                dims=dims,
                splits=op.splits,
                flops=op.flops * _gradient_cost(forward, what, len(multiplied)),
                reads=tuple(reads),
                writes=tuple(self._gradient(op, target, dims) for target in targets),
                follows=op.name,
                routing=op.routing,
            )
        )

    def _gradient(self, op: Op, target: Operand, dims: dict[str, int]) -> Operand:
        tensor = self.builder.tensors[target.tensor]
        name = f"{op.name}.{tensor.name}.grad"
        if tensor.role is Role.PARAMETER:
            gradient_bytes = self.builder.precision.gradient_bytes
            self.builder.add(name, tensor.shape, Role.GRADIENT, gradient_bytes, tensor.name)
            self.parameter_gradients[tensor.name].append(name)
        else:
            self._add_like(tensor.name, name)
            self.contributions[tensor.name].append(name)
        return Operand(name, _without_windows(target.axes))

    def _add_like(self, tensor: str, name: str) -> str:
        model = self.builder.tensors[tensor]
        opposite = model.exchanged.opposite if model.exchanged else None
        return self.builder.add(
            name, model.shape, Role.ACTIVATION, model.element_bytes, exchanged=opposite, routing=model.routing
        )

    def _reads(self, op: Op, role: Role) -> list[Operand]:
        return [operand for operand in op.reads if self.builder.tensors[operand.tensor].role is role]

    def _elements(self, operand: Operand) -> int:
        return self.builder.tensors[operand.tensor].elements


def _gradient_cost(forward: Forward, what: str, multiplied: int) -> float:
    """FLOPs of a gradient op, in those of the forward op."""
    if forward.gradient_cost is not None:
        return forward.gradient_cost if what == "data" else float(multiplied)
    return max(multiplied, 1)


def _dims_of(op: Op, operands: list[Operand]) -> dict[str, int]:
    return {a.dim: op.dims[a.dim] for operand in operands for a in operand.axes if a.dim is not None}


def _splits_along(op: Op, dims: dict[str, int]) -> dict[str, Split]:
    return {dim: split for dim, split in op.splits.items() if dim in dims}


def _over_targets(
    op: Op, targets: list[Operand], operands: list[Operand], builder: GraphBuilder
) -> tuple[dict[str, int], list[Operand]]:
    """Dimensions and reads of a gradient op.

    Where a target is read through a window (a convolution's input), the dimension runs over the
    positions of the target instead of those of the output, and the other operands are read
    through the inverse window. Positions that several iterations share (den > 1: copies of a parameter) are
    written by each of them: these are partial sums.
    """
    dims = dict(op.dims)
    inverse: dict[str, Axis] = {}
    for target in targets:
        if _without_windows(target.axes) is target.axes:
            continue
        for axis, size in zip(target.axes, builder.shape(target.tensor), strict=True):
            if axis.dim is not None and axis != plain_axis(axis.dim) and axis.den == 1:
                dims[axis.dim] = size
                inverse[axis.dim] = inverse_window(axis)
    if not inverse:
        return dims, operands
    return dims, [
        Operand(o.tensor, tuple(_through(axis, inverse, op.name) for axis in o.axes)) for o in operands
    ]


def _without_windows(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """Return the axes one to one; those that share positions (den > 1) as they are."""
    for axis in axes:
        if axis.den == 1 and axis is not plain_axis(axis.dim):
            return tuple(each if each.den > 1 else plain_axis(each.dim) for each in axes)
    return axes


def inverse_window(axis: Axis) -> Axis:
    """Iterations whose window (num, 1, low, high) covers a position.

    Position x lies in [a num + low, a num + high] for
    a from ceil((x - high) / num) = floor((x - high + num - 1) / num) to floor((x - low) / num).
    """
    if axis.den != 1:
        raise ConfigError(f"dimension {axis.dim!r}: no inverse for an axis with den = {axis.den}")
    return Axis(axis.dim, num=1, den=axis.num, low=axis.num - 1 - axis.high, high=-axis.low)


def _through(axis: Axis, inverse: dict[str, Axis], op: str) -> Axis:
    if axis.dim not in inverse:
        return axis
    if axis != plain_axis(axis.dim):
        raise ConfigError(f"op {op!r}: a gradient along {axis.dim!r} would need a window of a window")
    return inverse[axis.dim]
