"""The derivation of gradients, on graphs small enough to write down."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sipml_core.errors import ConfigError
from sipml_core.model.opgraph import Axis, Split
from sipml_core.workloads import resnet
from sipml_core.workloads.backward import inverse_window, training_step
from sipml_core.workloads.builder import GraphBuilder


@given(kernel=st.integers(1, 7), stride=st.integers(1, 4), size=st.integers(7, 40), cut=st.data())
def test_the_inverse_window_is_the_convolution_read_backwards(kernel, stride, size, cut):
    """Rows a..b of the input depend on exactly the outputs whose windows meet them."""
    padding = kernel // 2
    window = Axis("h", num=stride, low=-padding, high=kernel - 1 - padding)
    outputs = (size + 2 * padding - kernel) // stride + 1
    start = cut.draw(st.integers(0, size - 1))
    stop = cut.draw(st.integers(start + 1, size))
    meeting = [
        o for o in range(outputs) if o * stride + window.low < stop and o * stride + window.high >= start
    ]
    lo, hi = inverse_window(window).region(start, stop, outputs)
    assert list(range(lo, hi)) == meeting


def test_a_convolution_reads_its_neighbours_rows():
    """3x3, 8 rows cut in two: rows 0-3 need input rows 0-4; their gradient needs output rows 0-4."""
    b = GraphBuilder("net", 1, "fp32")
    x = b.input("x", (1, 8, 8, 3))
    y = resnet.conv(b, "first", x, 4, kernel=3)
    y = resnet.conv(b, "second", y, 4, kernel=3)
    resnet.classify(b, resnet.average_pool(b, "pool", y), 2)
    graph = training_step(b)
    forward, data = graph.op["second"], graph.op["second.data"]
    half = forward.part_ranges("h", 2, 0)
    assert forward.reads[0].region((1, 8, 8, 4), half)[1] == (0, 5)
    assert data.reads[0].region((1, 8, 8, 4), half)[1] == (0, 5)
    assert data.writes[0].region((1, 8, 8, 4), half)[1] == (0, 4)


def test_a_strided_gradient_runs_over_the_input():
    """3x3 at stride 2, 8 rows to 4: the data gradient has 8 rows to cut, the weight gradient 4."""
    b = GraphBuilder("net", 1, "fp32")
    y = resnet.conv(b, "first", b.input("x", (1, 8, 8, 3)), 4)
    y = resnet.conv(b, "second", y, 4, kernel=3, stride=2)
    resnet.classify(b, resnet.average_pool(b, "pool", y), 2)
    graph = training_step(b)
    assert graph.op["second"].dims["h"] == 4
    assert graph.op["second.data"].dims["h"] == 8
    assert graph.op["second.weight"].dims["h"] == 4
    assert graph.op["second.data"].flops == graph.op["second"].flops


def test_inputs_need_no_gradient():
    """The first layer has a weight gradient only."""
    b = GraphBuilder("net", 1, "fp32")
    y = resnet.conv(b, "first", b.input("x", (1, 8, 8, 3)), 4)
    resnet.classify(b, resnet.average_pool(b, "pool", y), 2)
    graph = training_step(b)
    assert "first.data" not in graph.op
    assert "first.weight" in graph.op


def product(b, name, left, right):
    n, i = b.shape(left)
    b.op(
        name,
        "matmul",
        {"n": n, "i": i},
        {"n": Split.SAMPLE},
        flops=2.0 * n * i,
        reads={left: "n i", right: "n i"},
        writes={f"{name}.y": "n"},
        factors=(left, right),
    )


def test_an_output_that_nothing_reads_is_refused():
    """A model whose last op carries a gradient has no loss."""
    b = GraphBuilder("net", 2, "fp32")
    resnet.conv(b, "first", b.input("x", (2, 8, 8, 3)), 4)
    with pytest.raises(ConfigError, match="op 'first': nothing reads its output"):
        training_step(b)


def test_two_activations_that_are_multiplied_share_one_gradient_op():
    """y = a . b: one backward op of twice the FLOPs that reads both and writes both gradients."""
    b = GraphBuilder("net", 2, "fp32")
    x = b.input("x", (2, 3))
    for name in ("left", "right"):
        w = b.parameter(f"{name}.weight", (3, 5))
        b.op(
            name,
            "matmul",
            {"n": 2, "i": 3, "o": 5},
            {"n": Split.SAMPLE},
            flops=60.0,
            reads={x: "n i", w: "i o"},
            writes={f"{name}.y": "n o"},
            factors=(x, w),
        )
    product(b, "dot", "left.y", "right.y")
    b.op(
        "loss",
        "loss",
        {"n": 2},
        {"n": Split.SAMPLE},
        flops=2.0,
        reads={"dot.y": "n"},
        writes={"loss.y": "n"},
        saved=("dot.y",),
        kept={"loss.y": 4},
    )
    graph = training_step(b)
    gradient = graph.op["dot.data"]
    assert [o.tensor for o in gradient.writes] == ["dot.left.y.grad", "dot.right.y.grad"]
    assert [o.tensor for o in gradient.reads] == ["loss.dot.y.grad", "left.y", "right.y"]
    assert gradient.flops == 2 * graph.op["dot"].flops


def test_a_tensor_name_used_twice_is_refused():
    """Where it is defined, not later in the graph."""
    b = GraphBuilder("net", 2, "fp32")
    b.input("x", (2, 3))
    with pytest.raises(ConfigError, match="net: tensor 'x' is defined twice"):
        b.parameter("x", (2, 3))


def test_a_window_without_an_inverse_is_refused():
    """Only windows that move whole steps have one."""
    with pytest.raises(ConfigError, match="dimension 'h': no inverse for an axis with den = 2"):
        inverse_window(Axis("h", num=1, den=2))
