"""The overlap rule against enumeration of elements."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sipml_core.model.opgraph import Axis, Op, Operand, Phase, Split
from sipml_core.partition.overlap import OverlapRule, box_key, boxes, overlap, part_bounds


def make_op(dims, axes):
    operand = Operand("t", tuple(axes))
    return Op(
        name="op", kind="k", phase=Phase.FORWARD, dims=dims, splits={d: Split.SAMPLE for d in dims},
        flops=0.0, reads=(operand,), writes=(),
    ), operand  # fmt: skip


def touched(op, operand, shape, dim, parts, part):
    """Elements in the box around what each single iteration of the part touches."""
    ranges = op.part_ranges(dim, parts, part)
    spans = []
    for axis, size in zip(operand.axes, shape, strict=True):
        if axis.dim is None:
            spans.append(range(size))
            continue
        positions = [
            x
            for i in range(*ranges[axis.dim])
            for x in ((i * axis.num + axis.low) // axis.den, (i * axis.num + axis.high) // axis.den)
        ]
        spans.append(range(max(min(positions), 0), min(max(positions) + 1, size)))
    return set(itertools.product(*spans))


@st.composite
def cut_operands(draw, shape):
    dims = {name: draw(st.integers(1, 7)) for name in ("n", "h", "c")}
    axes = []
    for _ in shape:
        dim = draw(st.sampled_from([None, "n", "h", "c"]))
        low = draw(st.integers(-2, 1))
        axes.append(
            Axis(
                dim, num=draw(st.integers(1, 2)), den=draw(st.integers(1, 2)), low=low,
                high=low + draw(st.integers(0, 3)),
            )
        )  # fmt: skip
    op, operand = make_op(dims, axes)
    dim = draw(st.sampled_from([None, "n", "h", "c"]))
    parts = 1 if dim is None else draw(st.integers(1, dims[dim]))
    return op, operand, dim, parts


SHAPE = (5, 6)


@settings(deadline=None, max_examples=150)
@given(producer=cut_operands(SHAPE), consumer=cut_operands(SHAPE))
def test_overlap_is_the_set_intersection_of_elements(producer, consumer):
    """Part i sends part j the elements that i holds and j needs, no more and no fewer."""
    held = [touched(*producer[:2], SHAPE, *producer[2:], part) for part in range(producer[3])]
    needed = [touched(*consumer[:2], SHAPE, *consumer[2:], part) for part in range(consumer[3])]
    rule = OverlapRule()
    keys = [box_key(op, operand, SHAPE, dim, parts) for op, operand, dim, parts in (producer, consumer)]
    met = rule.overlap(*keys)
    found = {
        (i, j): set(itertools.product(*(range(a, b) for a, b in zip(lo, hi, strict=True))))
        for i, j, lo, hi in zip(met.src, met.dst, met.lo, met.hi, strict=True)
    }
    pairs = itertools.product(range(producer[3]), range(consumer[3]))
    assert found == {(i, j): held[i] & needed[j] for i, j in pairs if held[i] & needed[j]}
    assert met.elements.tolist() == [len(found[i, j]) for i, j in zip(met.src, met.dst, strict=True)]


@given(extent=st.integers(1, 40), data=st.data())
def test_slices_tile_the_extent(extent, data):
    """Slices are adjacent, cover [0, extent), differ by at most one, and agree with Op.part_ranges."""
    parts = data.draw(st.integers(1, extent))
    start, stop = part_bounds(extent, parts)
    assert start[0] == 0
    assert stop[-1] == extent
    assert (start[1:] == stop[:-1]).all()
    assert np.ptp(stop - start) <= 1
    op, _ = make_op({"n": extent}, [Axis("n")])
    assert [op.part_ranges("n", parts, p)["n"] for p in range(parts)] == list(zip(start, stop, strict=True))


def test_convolution_halo():
    """3x3, stride 1, padding 1 on 8 rows in 2 parts: each needs 4 rows and one row of the other."""
    op, operand = make_op({"h": 8}, [Axis("h", num=1, low=-1, high=1)])
    needed = boxes(box_key(op, operand, (8,), "h", 2))
    assert needed.lo[:, 0].tolist() == [0, 3]
    assert needed.hi[:, 0].tolist() == [5, 8]
    held_op, written = make_op({"h": 8}, [Axis("h")])
    met = overlap(boxes(box_key(held_op, written, (8,), "h", 2)), needed)
    triples = list(zip(met.src, met.dst, met.elements, strict=True))
    assert triples == [(0, 0, 4), (0, 1, 1), (1, 0, 1), (1, 1, 4)]


def test_a_scalar_goes_to_every_part():
    """A tensor without axes (a loss) is one element, held and needed by every part."""
    op, operand = make_op({"n": 3}, [])
    key = box_key(op, operand, (), "n", 3)
    assert overlap(boxes(key), boxes(key)).elements.tolist() == [1] * 9


def test_equal_shapes_are_computed_once():
    """Operands of equal shape and cut share their key, whatever the op's other dimensions."""
    one, first = make_op({"n": 4, "o": 3}, [Axis("n")])
    two, second = make_op({"n": 4, "o": 9}, [Axis("n")])
    assert box_key(one, first, (4,), "n", 2) == box_key(two, second, (4,), "n", 2)
    assert box_key(one, first, (4,), "n", 2) != box_key(two, second, (4,), "n", 4)
