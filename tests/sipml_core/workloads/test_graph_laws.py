"""Laws that hold for every op of every model."""

import math
from itertools import pairwise

import pytest

from sipml_core.model.opgraph import Axis, Phase, Role, Split
from sipml_core.model.opwork import op_work


def boxes(graph, op, operand, dim, parts):
    shape = graph.tensor[operand.tensor].shape
    return [operand.region(shape, op.part_ranges(dim, parts, part)) for part in range(parts)]


def cuts(op):
    return [(dim, parts) for dim in op.splits for parts in (2, 3) if parts <= op.dims[dim]]


def test_an_axis_that_follows_a_dimension_has_its_extent(graph):
    """Shapes agree between the ops that share a tensor: only windows differ from the dimension."""
    for op in graph.ops:
        for operand in (*op.reads, *op.writes):
            for axis, size in zip(operand.axes, graph.tensor[operand.tensor].shape, strict=True):
                if axis.dim is not None and axis == Axis(axis.dim):
                    assert op.dims[axis.dim] == size, (op.name, operand.tensor)


def test_an_op_touches_whole_tensors(graph):
    """All iterations together write everything, and read everything but what a stride skips."""
    for op in graph.ops:
        for operand in op.writes:
            (box,) = boxes(graph, op, operand, None, 1)
            assert box == tuple((0, size) for size in graph.tensor[operand.tensor].shape)


def test_slices_tile_what_they_write_or_hold_partial_sums(graph):
    """Cut along a dimension that the tensor follows, parts are disjoint and cover it; cut along one
    that is summed over, every part holds the whole."""
    for op in graph.ops:
        for dim, parts in cuts(op):
            for operand in op.writes:
                shape = graph.tensor[operand.tensor].shape
                found = boxes(graph, op, operand, dim, parts)
                volumes = [math.prod(hi - lo for lo, hi in box) for box in found]
                if any(axis.dim == dim for axis in operand.axes):
                    assert sum(volumes) == math.prod(shape), (op.name, dim)
                    assert len({box for box in found}) == parts
                else:
                    assert volumes == [math.prod(shape)] * parts, (op.name, dim)


def test_slices_do_the_whole_work(graph):
    """FLOPs of the parts add up to the op's, for every split and every number of parts."""
    for op in graph.ops:
        for dim, parts in cuts(op):
            flops = sum(op_work(graph, op, dim, parts, part).flops for part in range(parts))
            assert flops == pytest.approx(op.flops, rel=1e-12), (op.name, dim)


def test_slices_read_at_least_what_the_whole_reads(graph):
    """Cutting an op never saves memory traffic: halos and broadcasts are read again."""
    for op in graph.ops:
        for dim, parts in cuts(op):
            parts_bytes = sum(op_work(graph, op, dim, parts, part).memory_bytes for part in range(parts))
            assert parts_bytes >= op_work(graph, op).memory_bytes * (1 - 1e-12), (op.name, dim)


def test_every_gradient_covers_its_parameter(graph):
    """Every parameter has a gradient of its shape from each op that uses it, and an optimizer op reads
    the parameter and all of them."""
    users = {}
    for op in graph.ops:
        if op.phase is Phase.FORWARD:
            for operand in op.reads:
                if graph.tensor[operand.tensor].role is Role.PARAMETER:
                    users.setdefault(operand.tensor, []).append(op.name)
    gradients = [t for t in graph.tensors if t.role is Role.GRADIENT]
    for parameter, ops in users.items():
        own = [g for g in gradients if g.parameter == parameter]
        assert [g.shape for g in own] == [graph.tensor[parameter].shape] * len(ops)
        for name in ops:
            read = {operand.tensor for operand in graph.op[f"{name}.optimizer"].reads}
            assert {parameter, *(g.name for g in own)} <= read
    assert {g.parameter for g in gradients} == users.keys()
    assert users.keys() == {t.name for t in graph.tensors if t.role is Role.PARAMETER}


def test_followers_can_be_cut_as_what_they_follow(graph):
    """Gradient ops offer the forward op's splits under the same names, optimizer ops those that the
    parameters follow; the ops that sum gradients those that the tensor follows."""
    for op in graph.ops:
        if op.follows is None:
            assert op.phase is Phase.FORWARD
            continue
        forward = graph.op[op.follows]
        assert op.splits.items() <= forward.splits.items()
        if op.name.endswith((".data", ".weight")):
            assert op.splits == forward.splits
        if op.phase is Phase.OPTIMIZER:
            assert op.dims.items() <= forward.dims.items()
            assert all(any(a.dim == dim for o in op.reads for a in o.axes) for dim in op.dims)


def test_nothing_is_computed_in_vain_or_left_without_a_gradient(graph):
    """Every written tensor is read; every activation of the forward pass that carries a gradient is
    read by a gradient op or passed through an addition."""
    read = {operand.tensor for op in graph.ops for operand in op.reads}
    written = {operand.tensor for op in graph.ops for operand in op.writes}
    assert written <= read
    for tensor in graph.tensors:
        if tensor.role is Role.ACTIVATION:
            assert tensor.name in written


def test_row_splits_are_those_that_leave_partial_sums(graph):
    """In the forward pass a dimension is called ROW exactly if some written tensor does not follow it."""
    for op in graph.ops:
        if op.phase is Phase.FORWARD:
            for dim, split in op.splits.items():
                follows = all(any(a.dim == dim for a in operand.axes) for operand in op.writes)
                assert (split is Split.ROW) != follows, (op.name, dim)


def test_attention_is_cut_along_heads_as_megatron_does(gpt):
    """qkv by heads is a column split, scores to context stay local, the output projection is a row split:
    what part p writes is what part p of the next op reads (Shoeybi et al. 2019, section 3)."""
    chain = ["qkv", "scores", "softmax", "dropout", "context", "out"]
    ops = [gpt.op[f"layer0.attention.{name}"] for name in chain]
    for op, following in pairwise(ops):
        for written in op.writes:
            for read in following.reads:
                if read.tensor == written.tensor:
                    assert boxes(gpt, op, written, "a", 4) == boxes(gpt, following, read, "a", 4)
    assert [op.splits["a"] for op in ops] == [Split.HEAD] * 5 + [Split.ROW]


def test_weight_gradient_is_a_partial_sum_by_samples_and_a_shard_by_columns(gpt):
    """dw[i, o] of a matrix product: cut along n every part holds it whole, along o a slice."""
    op = gpt.op["layer0.mlp.fc1.weight"]
    gradient = op.writes[0]
    assert boxes(gpt, op, gradient, "n", 3) == [((0, 16), (0, 64))] * 3
    assert boxes(gpt, op, gradient, "o", 2) == [((0, 16), (0, 32)), ((0, 16), (32, 64))]


def test_a_residual_is_passed_on_and_added_where_paths_meet(gpt):
    """x feeds norm and residual addition: its gradient is the sum of the addition's own and the norm's."""
    total = gpt.op["layer0.residual1.y.sum"]
    assert [operand.tensor for operand in total.reads] == [
        "layer0.residual2.y.grad",
        "layer0.norm2.layer0.residual1.y.grad",
    ]
    assert total.follows == "layer0.residual1"


def test_backward_visits_layers_in_reverse(gpt):
    """Gradients of the last layers are ready first, which is what lets their exchange overlap."""
    order = [op.name for op in gpt.ops]
    assert order.index("layer1.mlp.fc2.weight") < order.index("layer0.mlp.fc2.weight")
    assert order.index("layer0.mlp.fc2.weight") < order.index("layer0.attention.qkv.weight")
