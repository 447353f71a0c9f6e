"""FLOPs and bytes of an op and of its slices, on numbers worked by hand."""

import pytest

from sipml_core.model.opgraph import Axis, Op, Operand, OpGraph, Phase, Role, Split, Tensor
from sipml_core.model.opwork import op_work


def operand(tensor, *dims):
    return Operand(tensor, tuple(Axis(dim) for dim in dims))


@pytest.fixture(scope="module")
def graph():
    """y[n, o] = x[n, i] w[i, o] with n 8, i 4, o 6; its weight gradient and optimizer; an embedding."""
    tensors = (
        Tensor(name="x", shape=(8, 4), role=Role.INPUT, element_bytes=2),
        Tensor(name="w", shape=(4, 6), role=Role.PARAMETER, element_bytes=2),
        Tensor(name="y", shape=(8, 6), role=Role.ACTIVATION, element_bytes=2),
        Tensor(name="dw", shape=(4, 6), role=Role.GRADIENT, element_bytes=2, parameter="w"),
        Tensor(name="ids", shape=(8,), role=Role.INPUT, element_bytes=8),
        Tensor(name="table", shape=(100, 4), role=Role.PARAMETER, element_bytes=2),
        Tensor(name="e", shape=(8, 4), role=Role.ACTIVATION, element_bytes=2),
    )
    dims = {"n": 8, "i": 4, "o": 6}
    splits = {"n": Split.SAMPLE, "o": Split.COLUMN, "i": Split.ROW}
    ops = (
        Op(
            name="mm",
            kind="matmul",
            phase=Phase.FORWARD,
            dims=dims,
            splits=splits,
            flops=384.0,
            reads=(operand("x", "n", "i"), operand("w", "i", "o")),
            writes=(operand("y", "n", "o"),),
        ),
        Op(
            name="embed",
            kind="embedding",
            phase=Phase.FORWARD,
            dims={"n": 8, "v": 100, "h": 4},
            splits={"n": Split.SAMPLE, "v": Split.ROW},
            flops=0.0,
            reads=(operand("ids", "n"), operand("table", "v", "h")),
            writes=(operand("e", "n", "h"),),
        ),
        Op(
            name="mm.weight",
            kind="matmul",
            phase=Phase.BACKWARD,
            dims=dims,
            splits=splits,
            flops=384.0,
            reads=(operand("y", "n", "o"), operand("x", "n", "i")),
            writes=(operand("dw", "i", "o"),),
            follows="mm",
        ),
        Op(
            name="mm.optimizer",
            kind="optimizer",
            phase=Phase.OPTIMIZER,
            dims={"i": 4, "o": 6},
            splits={"o": Split.COLUMN, "i": Split.ROW},
            flops=288.0,
            reads=(operand("w", "i", "o"), operand("dw", "i", "o")),
            writes=(),
            follows="mm",
        ),
    )
    return OpGraph(name="tiny", samples=8, precision="mixed", tensors=tensors, ops=ops)


def test_a_whole_op(graph):
    """32 + 24 elements read, 48 written, 2 bytes each."""
    work = op_work(graph, graph.op["mm"])
    assert (work.flops, work.memory_bytes, work.output_elements) == (384.0, 208.0, 48.0)
    assert (work.samples, work.fraction) == (8, 1.0)
    assert (work.op, work.kind, work.phase, work.precision) == ("mm", "matmul", Phase.FORWARD, "mixed")


def test_cut_by_samples_it_reads_the_whole_weight(graph):
    """2 of 8 samples: 8 + 24 read, 12 written; a quarter of the FLOPs; the whole op on 2 samples."""
    work = op_work(graph, graph.op["mm"], "n", 4, 1)
    assert (work.flops, work.memory_bytes, work.samples, work.fraction) == (96.0, 88.0, 2, 1.0)


def test_cut_by_columns_it_reads_the_whole_input(graph):
    """3 of 6 columns: 32 + 12 read, 24 written; half of the op on all 8 samples."""
    work = op_work(graph, graph.op["mm"], "o", 2, 0)
    assert (work.flops, work.memory_bytes, work.samples, work.fraction) == (192.0, 136.0, 8, 0.5)


def test_unequal_slices_share_the_work_by_their_length(graph):
    """6 columns in 4 parts: 2, 2, 1, 1."""
    flops = [op_work(graph, graph.op["mm"], "o", 4, part).flops for part in range(4)]
    assert flops == [128.0, 128.0, 64.0, 64.0]


def test_a_weight_gradient_cut_by_samples_writes_a_whole_partial_sum(graph):
    """24 elements written whatever the number of parts; cut by columns a share of them."""
    assert op_work(graph, graph.op["mm.weight"], "n", 8, 0).output_elements == 24
    assert op_work(graph, graph.op["mm.weight"], "o", 6, 0).output_elements == 4


def test_the_optimizer_moves_its_state_too(graph):
    """24 parameters: read weight and gradient (2 + 2), write the weight (2), read and write 12 bytes of
    master copy and moments: 30 bytes each (Rajbhandari et al. 2020, section 3.1)."""
    assert op_work(graph, graph.op["mm.optimizer"]).memory_bytes == 24 * 30
    assert op_work(graph, graph.op["mm.optimizer"], "o", 2, 0).memory_bytes == 12 * 30
    assert op_work(graph, graph.op["mm.optimizer"]).output_elements == 24


def test_a_lookup_reads_the_rows_it_needs(graph):
    """8 of 100 rows: 8 indices of 8 bytes, 32 elements read and 32 written."""
    assert op_work(graph, graph.op["embed"]).memory_bytes == 64 + 64 + 64
