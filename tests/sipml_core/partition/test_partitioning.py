"""Cutting ops into sub-ops: how many, how long, and what travels between them."""

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sipml_core.errors import ConfigError
from sipml_core.model.cluster import Cluster
from sipml_core.model.opgraph import Axis, Op, Operand, OpGraph, Phase, Role, Split, Tensor
from sipml_core.partition.layouts import Layout
from sipml_core.partition.partitioning import partition, parts_for
from sipml_core.plugin.interfaces import GpuModel, NoOptions

S, C, R = Split.SAMPLE, Split.COLUMN, Split.ROW


class FlopClock(GpuModel):
    """A GPU that does one FLOP in one us, so that times in these tests are FLOPs."""

    name = "flop-clock"
    summary = "1 FLOP = 1 us"
    memory_bytes = 1e12

    def op_time_us(self, work):
        return work.flops


GPU = FlopClock(NoOptions())
CLUSTER = Cluster(gpus=8, bandwidth_gbps=8.0)


def tensor(name, shape, role=Role.ACTIVATION, parameter=None):
    return Tensor(name=name, shape=shape, role=role, element_bytes=4, parameter=parameter)


def along(name, *dims):
    return Operand(name, tuple(Axis(dim) for dim in dims))


def op(name, dims, splits, reads, writes, flops=100.0, phase=Phase.FORWARD, follows=None):
    return Op(
        name=name, kind="matmul", phase=phase, dims=dims, splits=splits, flops=flops,
        reads=tuple(reads), writes=tuple(writes), follows=follows,
    )  # fmt: skip


def graph_of(tensors, ops):
    return OpGraph(name="g", samples=1, precision="fp32", tensors=tuple(tensors), ops=tuple(ops))


def linear(samples=6, inner=4, outer=5):
    """One linear layer with backward and optimizer: y = x w."""
    dims = {"n": samples, "i": inner, "o": outer}
    splits = {"n": S, "o": C, "i": R}
    tensors = [
        tensor("x", (samples, inner)), tensor("w", (inner, outer), Role.PARAMETER),
        tensor("y", (samples, outer)), tensor("dy", (samples, outer)), tensor("dx", (samples, inner)),
        tensor("dw", (inner, outer), Role.GRADIENT, "w"),
    ]  # fmt: skip
    back = Phase.BACKWARD
    ops = [
        op("source", {"n": samples, "i": inner}, {"n": S, "i": C}, [], [along("x", "n", "i")]),
        op("fc", dims, splits, [along("x", "n", "i"), along("w", "i", "o")], [along("y", "n", "o")]),
        op("loss", {"n": samples, "o": outer}, {"n": S}, [along("y", "n", "o")], [along("dy", "n", "o")]),
        op("fc.dx", dims, {}, [along("dy", "n", "o"), along("w", "i", "o")], [along("dx", "n", "i")],
           phase=back, follows="fc"),
        op("fc.dw", dims, {}, [along("dy", "n", "o"), along("x", "n", "i")], [along("dw", "i", "o")],
           phase=back, follows="fc"),
        op("fc.opt", {"i": inner, "o": outer}, {}, [along("dw", "i", "o"), along("w", "i", "o")], [],
           phase=Phase.OPTIMIZER, follows="fc"),
    ]  # fmt: skip
    return graph_of(tensors, ops)


def cut(graph, layout, mp=3, tau_us=10.0, cluster=CLUSTER):
    return partition(graph, GPU, cluster, mp=mp, tau_us=tau_us, layout=layout)


def parts_of(balanced, name):
    return int(balanced.parts[[o.name for o in balanced.graph.ops].index(name)])


def between(balanced, source, target):
    """Elements that travel, by (part of source, part of target)."""
    names = [o.name for o in balanced.graph.ops]
    s, t = balanced.first[names.index(source)], balanced.first[names.index(target)]
    of_s = (balanced.edge_src >= s) & (balanced.edge_src < balanced.first[names.index(source) + 1])
    of_t = (balanced.edge_dst >= t) & (balanced.edge_dst < balanced.first[names.index(target) + 1])
    volume = (balanced.edge_hi - balanced.edge_lo).prod(axis=1)
    return {
        (int(balanced.edge_src[e] - s), int(balanced.edge_dst[e] - t)): int(volume[e])
        for e in np.flatnonzero(of_s & of_t)
    }


@pytest.mark.parametrize(
    ("time_us", "mp", "extent", "parts"),
    [
        (100, 8, 64, 8),
        (34, 8, 64, 3),
        (35, 8, 64, 4),
        (4, 8, 64, 1),
        (0, 8, 64, 1),
        (99, 64, 6, 6),
        (99, 64, 64, 10),
    ],
)
def test_number_of_parts(time_us, mp, extent, parts):
    """Parts of about tau = 10 us: nearest whole number, at most mp, at most the iterations there are."""
    assert parts_for(time_us, 10.0, mp, extent) == parts


def test_mp_one_leaves_every_op_whole():
    """With one device per group there is nothing to balance over."""
    balanced = cut(linear(), {"fc": "n"}, mp=1)
    assert balanced.subops == len(balanced.graph.ops)
    assert set(balanced.split_dim) == {None}


@pytest.mark.parametrize(("dim", "optimizer_dim"), [("n", None), ("o", "o"), ("i", "i")])
def test_followers_are_cut_as_the_op_they_follow(dim, optimizer_dim):
    """Backward and optimizer take dimension and parts; without the dimension an optimizer is repeated."""
    balanced = cut(linear(), {"fc": dim})
    split = dict(zip([o.name for o in balanced.graph.ops], balanced.split_dim, strict=True))
    assert [parts_of(balanced, name) for name in ("fc", "fc.dx", "fc.dw", "fc.opt")] == [3, 3, 3, 3]
    assert [split[name] for name in ("fc", "fc.dx", "fc.dw", "fc.opt")] == [dim, dim, dim, optimizer_dim]


def test_duration_is_slice_time_with_minimum_and_launch():
    """100 FLOPs over 5 outputs in 3 parts of 2, 2, 1: 40, 40, 20 us, plus 1 us launch each."""
    balanced = cut(linear(), {"fc": "o"})
    start = balanced.first[1]
    assert balanced.duration_us[start : start + 3] == pytest.approx([41.0, 41.0, 21.0])
    slow = cut(linear(), None, cluster=Cluster(gpus=8, bandwidth_gbps=1.0, minimum_op_us=500.0))
    assert set(slow.duration_us) == {501.0}


def test_a_repeated_optimizer_takes_the_whole_time_in_every_copy():
    """Each replica of the parameters is updated in full: nothing is saved by the copies."""
    balanced = cut(linear(), {"fc": "n"})
    assert balanced.duration_us[balanced.first[5] :] == pytest.approx([101.0] * 3)


def test_aligned_cuts_send_each_part_its_own_elements():
    """Sample to sample: part p needs exactly what part p holds; together the whole tensor."""
    balanced = cut(linear(), {"source": "n", "fc": "n"})
    assert between(balanced, "source", "fc") == {(0, 0): 8, (1, 1): 8, (2, 2): 8}


def test_an_uncut_producer_sends_the_tensor_once_to_parts_along_its_axis():
    """Conservation: 6 x 4 elements leave the whole op, 2 samples to each part."""
    balanced = cut(linear(), {"source": None, "fc": "n"})
    assert between(balanced, "source", "fc") == {(0, 0): 8, (0, 1): 8, (0, 2): 8}


def test_column_cut_broadcasts_the_input():
    """Every column part contracts over the whole input."""
    balanced = cut(linear(), {"source": None, "fc": "o"})
    assert between(balanced, "source", "fc") == {(0, 0): 24, (0, 1): 24, (0, 2): 24}


def test_row_cut_holds_partial_sums():
    """Cut along the contracted dimension, every part holds a full-size partial of y: 6 x 5 in all.

    The loss, cut by sample, adds 3 partials of its 2 samples: 10 elements from each part.
    """
    balanced = cut(linear(), {"fc": "i", "loss": "n"})
    assert between(balanced, "fc", "loss") == {(i, j): 10 for i in range(3) for j in range(3)}


def test_gradient_shards_follow_the_cut():
    """Along o, part p makes its own columns of dw; along n, every part a partial of all of dw."""
    columns = cut(linear(), {"fc": "o"})
    assert shard_boxes(columns) == {((0, 0), (4, 2)), ((0, 2), (4, 4)), ((0, 4), (4, 5))}
    assert len(columns.shard_subop) == 6  # 3 produced, 3 consumed
    samples = cut(linear(), {"fc": "n"})
    assert shard_boxes(samples) == {((0, 0), (4, 5))}
    assert len(samples.shard_subop) == 6


def shard_boxes(balanced):
    corners = zip(balanced.shard_lo, balanced.shard_hi, strict=True)
    return {(tuple(lo[:2]), tuple(hi[:2])) for lo, hi in corners}


def test_gradients_and_parameters_make_no_edge():
    """Collectives carry gradients; parameters live where they are used."""
    balanced = cut(linear(), {"fc": "n"})
    carried = {balanced.graph.tensors[t].name for t in balanced.edge_tensor}
    assert carried == {"x", "y", "dy"}


@pytest.mark.parametrize("read_as", [[("n", "i"), ("n", "i")], [("n", "i")]])
def test_reading_a_tensor_twice_alike_moves_it_once(read_as):
    """x * x needs one copy of x."""
    dims = {"n": 6, "i": 4}
    graph = graph_of(
        [tensor("x", (6, 4)), tensor("y", (6, 4))],
        [
            op("make", dims, {"n": S}, [], [along("x", "n", "i")]),
            op("use", dims, {"n": S}, [along("x", *r) for r in read_as], [along("y", "n", "i")]),
        ],
    )
    assert len(cut(graph, None).edge_src) == 3


@settings(deadline=None, max_examples=60)
@given(
    samples=st.integers(1, 9), inner=st.integers(1, 7), outer=st.integers(1, 7), mp=st.integers(1, 8),
    source=st.sampled_from([None, "n", "i"]), fc=st.sampled_from([None, "n", "i", "o"]),
    loss=st.sampled_from([None, "n"]),
)  # fmt: skip
def test_edges_are_what_parts_hold_and_need(samples, inner, outer, mp, source, fc, loss):
    """Every edge equals the meet of its two boxes; what a part needs is covered by what it gets."""
    graph = linear(samples, inner, outer)
    balanced = cut(graph, {"source": source, "fc": fc, "loss": loss}, mp=mp)
    assert (balanced.edge_src < balanced.edge_dst).all()
    assert (balanced.edge_lo < balanced.edge_hi).all()
    for index, consumer in enumerate(graph.ops):
        for operand in consumer.reads:
            if graph.tensor[operand.tensor].role is not Role.ACTIVATION:
                continue
            for part in range(balanced.parts[index]):
                ranges = consumer.part_ranges(balanced.split_dim[index], int(balanced.parts[index]), part)
                box = operand.region(graph.tensor[operand.tensor].shape, ranges)
                assert covered(balanced, int(balanced.first[index]) + part, operand.tensor) == elements(box)


def elements(box):
    return {(a, b) for a in range(*box[0]) for b in range(*box[1])}


def covered(balanced, subop, name):
    number = [t.name for t in balanced.graph.tensors].index(name)
    mine = np.flatnonzero((balanced.edge_dst == subop) & (balanced.edge_tensor == number))
    return {
        point
        for e in mine
        for point in elements(tuple(zip(balanced.edge_lo[e][:2], balanced.edge_hi[e][:2], strict=True)))
    }


def test_column_then_row_moves_an_all_reduce():
    """Tensor-parallel MLP: per device 2 (n - 1) / n * S elements forward, none between products.

    S = n_samples x width. Column parts need the whole input (all-gather from the token-wise op cut
    by sample), the row parts' partial sums go to the token-wise op after (reduce-scatter).
    """
    n, samples, width, hidden = 4, 8, 6, 12
    up = {"n": samples, "i": width, "o": hidden}
    down = {"n": samples, "i": hidden, "o": width}
    token = {"n": samples, "c": width}
    graph = graph_of(
        [
            tensor("x", (samples, width)), tensor("a", (samples, hidden)), tensor("b", (samples, width)),
            tensor("z", (samples, width)),
        ],
        [
            op("norm", token, {"n": S}, [], [along("x", "n", "c")]),
            op("up", up, {"o": C}, [along("x", "n", "i")], [along("a", "n", "o")]),
            op("down", down, {"i": R}, [along("a", "n", "i")], [along("b", "n", "o")]),
            op("add", token, {"n": S}, [along("b", "n", "c")], [along("z", "n", "c")]),
        ],
    )  # fmt: skip
    balanced = cut(graph, {"norm": "n", "up": "o", "down": "i", "add": "n"}, mp=n)
    received = np.zeros(n)
    for source, target in (("norm", "up"), ("up", "down"), ("down", "add")):
        for (i, j), count in between(balanced, source, target).items():
            received[j] += count * (i != j)
    size = samples * width
    assert received.tolist() == [2 * (n - 1) / n * size] * n


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ({"fcc": "n"}, "no op 'fcc'; did you mean 'fc'"),
        ({"fc": "q"}, "no split of op 'fc' 'q'; known: i, n, o"),
        ({"fc.dw": "n"}, "follows 'fc'; set the split of that one"),
    ],
)
def test_a_layout_that_does_not_fit_is_refused(layout, message):
    """Op and dimension names are checked, with the remedy."""
    with pytest.raises(ConfigError, match=message):
        cut(linear(), layout)


@pytest.mark.parametrize(("mp", "tau_us"), [(0, 10.0), (2, 0.0), (2, float("nan")), (2, float("inf"))])
def test_bad_numbers_are_refused(mp, tau_us):
    """mp and tau must be positive and finite."""
    with pytest.raises(ConfigError, match=r"mp must be at least 1|tau_us must be positive"):
        cut(linear(), None, mp=mp, tau_us=tau_us)


def duplicated(dims, *names):
    return Layout(name="hand", dims=dims, duplicated=frozenset(names))


def test_a_duplicated_op_takes_the_whole_time_in_every_part():
    """fc and its two gradients are 100 us each: 3 x 300 instead of 300 in 3 parts. The optimizer is
    repeated beside every part in both, source and loss are divided in both."""
    cluster = Cluster(gpus=8, bandwidth_gbps=8.0, launch_us=0.0)
    dims = {"fc": "n"}
    divided, whole = (cut(linear(), layout, cluster=cluster) for layout in (dims, duplicated(dims, "fc")))
    assert whole.duration_us.sum() - divided.duration_us.sum() == pytest.approx((3 - 1) * 300.0)
    start = whole.first[1]
    assert whole.duration_us[start : start + 3].tolist() == [100.0] * 3
    assert whole.duplicated.tolist() == [False, True, False, True, True, True]
    assert not divided.duplicated.any()


def test_a_duplicated_op_exchanges_what_its_parts_would():
    """Every part sends its own rows and needs its own rows: the edges are those of a cut along samples."""
    divided, whole = cut(linear(), {"fc": "n"}), cut(linear(), duplicated({"fc": "n"}, "fc"))
    for name in ("edge_src", "edge_dst", "edge_tensor", "edge_lo", "edge_hi"):
        assert np.array_equal(getattr(divided, name), getattr(whole, name)), name


def test_a_duplicated_op_has_a_part_on_every_device_whatever_tau():
    """100 us at tau = 100 us are one sub-op, but six devices do it; 6 samples are not enough for 8."""
    layout = duplicated({"fc": "n"}, "fc")
    for mp, parts in ((6, 6), (8, 6)):
        balanced = cut(linear(), layout, mp=mp, tau_us=100.0)
        assert parts_of(balanced, "fc") == parts_of(balanced, "fc.dw") == parts
        assert parts_of(balanced, "loss") == 1


def test_parameters_of_a_duplicated_op_are_whole_in_every_part():
    """Cut along the rows of its weight, [i, o]: every part makes and uses all 4 x 5 elements, not 2 x 5."""
    layout = {"fc": "i"}
    for how, rows in ((layout, 2), (duplicated(layout, "fc"), 4)):
        balanced = cut(linear(), how, mp=2)
        assert len(balanced.shard_lo) == 4
        assert ((balanced.shard_hi - balanced.shard_lo)[:, 0] == rows).all()


def test_one_device_duplicates_nothing():
    """mp = 1: the same graph to the last bit."""
    graph = linear()
    plain, whole = (cut(graph, layout, mp=1) for layout in ({"fc": "n"}, duplicated({"fc": "n"}, "fc")))
    for field in attrs.fields(type(plain)):
        one, other = getattr(plain, field.name), getattr(whole, field.name)
        assert one.tobytes() == other.tobytes() if isinstance(one, np.ndarray) else one == other, field.name


@pytest.mark.parametrize(
    ("name", "message"),
    [("fcc", "layout: no op 'fcc'; did you mean 'fc'"), ("fc.dw", "follows 'fc'; set the split of that one")],
)
def test_what_cannot_be_duplicated_is_refused(name, message):
    with pytest.raises(ConfigError, match=message):
        cut(linear(), duplicated({}, name))


def test_rank_above_the_limit_is_refused():
    """Boxes hold MAX_RANK axes."""
    graph = graph_of([tensor("x", (1,) * 7)], [])
    with pytest.raises(ConfigError, match="'x' has 7 axes, at most 6"):
        cut(graph, None)
