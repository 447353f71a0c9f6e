"""A layout: the dimension along which each forward op is cut, and the fixed rules that give one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError, nearest, unknown
from sipml_core.fields import frozen
from sipml_core.model import Op, OpGraph, Role, Split


@frozen(kw_only=True)
class Choice:
    """Why one forward op is cut as it is. Times are for one training step. [us]"""

    op: str
    #: Dimension it is cut along, what such a cut is called, and into how many parts; None: not cut.
    dim: str | None
    split: Split | None
    parts: int
    #: Compute, traffic to and from its neighbours, and gradient synchronisation under this layout.
    compute_us: float
    traffic_us: float
    sync_us: float
    #: The best other cut of this op with all else left as it is, and what it would add.
    runner_up: str | None = None
    runner_up_extra_us: float | None = None


@frozen(kw_only=True)
class Layout:
    """Split dimension of each forward op (None: not cut), and how it was decided.

    Layouts that cut alike are equal, whatever the reasons for their cuts.

    >>> whole = Layout(name="auto", dims={"product": None})
    >>> whole == Layout(name="auto", dims={"product": "rows"})
    False
    """

    name: str
    dims: Mapping[str, str | None] = attrs.field(hash=False)
    choices: tuple[Choice, ...] = attrs.field(default=(), eq=False)
    #: Ops that every device of a group does in full, all backward and optimizer ops that follow them
    #: included. Their dimension says only which part of the result a device sends to the others.
    duplicated: frozenset[str] = frozenset()
    #: Every op is cut into as many parts as the group has devices, whatever its time.
    on_all_devices: bool = False


#: Splits in the order a rule prefers them; an op offers some of them.
_SAMPLE_ORDER = (Split.SAMPLE, Split.SPATIAL, Split.HEAD, Split.COLUMN, Split.ROW)
_FEATURES = (Split.HEAD, Split.COLUMN)
_TOKENS = (Split.SAMPLE, Split.SPATIAL)


def leads(op: Op) -> bool:
    """Return whether the op is cut and placed in its own right rather than with the op it follows."""
    return op.follows is None


def leader_index(graph: OpGraph) -> NDArray[np.int64]:
    """Return the op that each op is placed with: itself, or the end of the chain it follows. [ops]"""
    number = {op.name: index for index, op in enumerate(graph.ops)}
    leader = np.arange(len(graph.ops))
    for index, op in enumerate(graph.ops):
        root = op
        while root.follows is not None:
            root = graph.op[root.follows]
        leader[index] = number[root.name]
    return leader


def sample_layout(graph: OpGraph) -> Layout:
    """Return every op cut along the batch; along height, sequence, ... where there is no batch."""
    dims = {op.name: _first(op, _SAMPLE_ORDER) for op in graph.ops if leads(op)}
    return Layout(name="sample", dims=dims)


def tensor_layout(graph: OpGraph) -> Layout:
    """Return the layout of Megatron's rule: an op keeps a cut of its first input along features.

    Such a cut moves no byte. It is a ROW split where the op contracts over them. Without such a cut, ops with
    parameters are cut along heads or columns, so that a pair of matrix products becomes column,
    then row (Shoeybi et al. 2019, "Megatron-LM", section 3), and others along the batch.
    """
    dims: dict[str, str | None] = {}
    for op in filter(leads, graph.ops):
        own = _first(op, _FEATURES) if _has_parameters(graph, op) else None
        dims[op.name] = _inherited(graph, op, dims) or own or _first(op, _SAMPLE_ORDER)
    return Layout(name="tensor", dims=dims)


def megatron_layout(graph: OpGraph) -> Layout:
    """Return the layout of Megatron-LM before sequence parallelism: only products are divided.

    Products, that is ops with parameters that sum over a dimension, are cut as by `tensor_layout`,
    but lookups along the vocabulary, and so are ops that keep the cut of such a product. Between two
    all-reduces every GPU normalises, drops and adds all tokens (Shoeybi et al. 2019, section 3). An
    all-reduce is a reduce-scatter to the parts of such an op and an all-gather from them; so that
    every device has a part, the longer of batch and sequence is cut.
    """
    dims: dict[str, str | None] = {}
    duplicated = set()
    for op in filter(leads, graph.ops):
        dim = _inherited(graph, op, dims) or _product_dim(graph, op)
        if dim is None:
            duplicated.add(op.name)
            dim = _longest(op, _TOKENS) or _first(op, _FEATURES)
        dims[op.name] = dim
    return Layout(name="megatron", dims=dims, duplicated=frozenset(duplicated))


def sequence_layout(graph: OpGraph) -> Layout:
    """Return the layout of Megatron-LM with sequence parallelism (Korthikanti et al. 2022, section 4.2.2).

    That is `megatron_layout`, whose all-reduces are a reduce-scatter to parts of the tokens and an
    all-gather from them, with a device doing only its part of what is between the two.
    """
    dims = megatron_layout(graph).dims
    return Layout(name="sequence", dims=dims, on_all_devices=True)


def _product_dim(graph: OpGraph, op: Op) -> str | None:
    """Return the dimension along which a product without an inherited cut is cut; None: no product."""
    if not _has_parameters(graph, op) or Split.ROW not in op.splits.values():
        return None
    return _first(op, (Split.ROW,) if op.kind == "embedding" else (*_FEATURES, Split.ROW))


def _has_parameters(graph: OpGraph, op: Op) -> bool:
    return any(graph.tensor[operand.tensor].role is Role.PARAMETER for operand in op.reads)


def _inherited(graph: OpGraph, op: Op, dims: Mapping[str, str | None]) -> str | None:
    """Return a split of `op` along features that runs along the axis its first input is divided on."""
    operand = next((o for o in op.reads if o.tensor in graph.producer), None)
    if operand is None:
        return None
    producer = graph.op[graph.producer[operand.tensor]]
    cut = dims.get(producer.name)
    written = next(o for o in producer.writes if o.tensor == operand.tensor)
    for mine, theirs in zip(operand.axes, written.axes, strict=True):
        same = cut is not None and theirs.dim == cut
        if same and op.splits.get(mine.dim or "") in (*_FEATURES, Split.ROW):
            return mine.dim
    return None


def _first(op: Op, order: tuple[Split, ...]) -> str | None:
    """Return the dimension of the most preferred split that the op offers and that can be cut at all."""
    for split in order:
        for dim, kind in op.splits.items():
            if kind is split and op.dims[dim] > 1:
                return dim
    return None


def _longest(op: Op, kinds: tuple[Split, ...]) -> str | None:
    """Return the dimension of most iterations among splits of these kinds, if any can be cut at all."""
    dims = [dim for dim, kind in op.splits.items() if kind in kinds and op.dims[dim] > 1]
    return max(dims, key=lambda dim: op.dims[dim], default=None)


FIXED_LAYOUTS: dict[str, Callable[[OpGraph], Layout]] = {
    "sample": sample_layout,
    "tensor": tensor_layout,
    "megatron": megatron_layout,
    "sequence": sequence_layout,
}


def fixed_layout(graph: OpGraph, name: str) -> Layout:
    """Return the layout that the fixed rule of that name gives; `ConfigError` for another name."""
    if name not in FIXED_LAYOUTS:
        raise ConfigError(unknown("layout", name, FIXED_LAYOUTS))
    return FIXED_LAYOUTS[name](graph)


def checked_dims(graph: OpGraph, layout: Layout | Mapping[str, str | None] | None) -> dict[str, str | None]:
    """Return the split dimension of every leading op; by the sample rule where `layout` has none.

    Raises
    ------
    ConfigError
        The layout names an op that does not exist or follows another, or a dimension along which
        the op cannot be cut.
    """
    dims = dict(sample_layout(graph).dims)
    given = layout.dims if isinstance(layout, Layout) else layout or {}
    for name, dim in given.items():
        op = _leading_op(graph, name)
        if dim is not None and dim not in op.splits:
            raise ConfigError("layout: " + unknown(f"split of op {name!r}", dim, op.splits))
        dims[name] = dim
    return dims


def checked_duplicates(graph: OpGraph, layout: Layout | Mapping[str, str | None] | None) -> frozenset[str]:
    """Return leading ops that the layout duplicates.

    Raises
    ------
    ConfigError
        As `checked_dims`.
    """
    given = layout.duplicated if isinstance(layout, Layout) else ()
    return frozenset(_leading_op(graph, name).name for name in given)


def _leading_op(graph: OpGraph, name: str) -> Op:
    op = graph.op.get(name)
    if op is None:
        hint = nearest(name, graph.op)
        raise ConfigError(f"layout: no op {name!r}" + (f"; did you mean {hint!r}?" if hint else ""))
    if op.follows is not None:
        raise ConfigError(f"layout: op {name!r} follows {op.follows!r}; set the split of that one")
    return op
