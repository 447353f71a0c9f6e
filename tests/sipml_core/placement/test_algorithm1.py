"""Algorithm 1: the limits always hold, the paper's example comes out, ties are settled as stated."""

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sipml_core.errors import InfeasibleError
from sipml_core.model.balanced import MAX_RANK, BalancedGraph, PlacementLimits
from sipml_core.model.opgraph import Axis, Op, Operand, OpGraph, Phase, Role, Tensor
from sipml_core.placement import PLACERS, Aligned
from sipml_core.placement.algorithm1 import Algorithm1
from sipml_core.placement.limits import broken_edges, placement_limits


def balanced(parts, edges, *, follows=None, duration_us=None, elements=None):
    """Ops 0, 1, ... cut in `parts`, with edges between sub-ops ((op, part), (op, part))."""
    follows = follows or {}
    read = Operand("t", (Axis(None),))
    tensors = (Tensor(name="t", shape=(1000,), role=Role.ACTIVATION, element_bytes=1),)
    ops = tuple(
        Op(
            name=f"op{i}", kind="k", phase=Phase.BACKWARD if i in follows else Phase.FORWARD, dims={"n": 99},
            splits={}, flops=1.0, reads=(read,), writes=(),
            follows=f"op{follows[i]}" if i in follows else None,
        )
        for i in range(len(parts))
    )  # fmt: skip
    first = np.concatenate(([0], np.cumsum(parts)))
    count = len(edges)
    hi = np.ones((count, MAX_RANK), dtype=np.int32)
    hi[:, 0] = elements if elements is not None else 1
    return BalancedGraph(
        graph=OpGraph(name="g", samples=1, precision="fp32", tensors=tensors, ops=ops),
        split_dim=(None,) * len(parts), first=first,
        duration_us=np.full(first[-1], 10.0) if duration_us is None else duration_us,
        edge_src=[first[a] + p for (a, p), _ in edges], edge_dst=[first[b] + q for _, (b, q) in edges],
        edge_tensor=np.zeros(count), edge_lo=np.zeros((count, MAX_RANK)), edge_hi=hi,
        shard_subop=np.empty(0), shard_tensor=np.empty(0),
        shard_lo=np.empty((0, MAX_RANK)), shard_hi=np.empty((0, MAX_RANK)),
    )  # fmt: skip


def everything(a, parts_a, b, parts_b):
    return [((a, i), (b, j)) for i in range(parts_a) for j in range(parts_b)]


def place(graph, devices, range_hops=None, **options):
    limits = PlacementLimits(devices=devices, range_hops=range_hops)
    return Algorithm1(Algorithm1.Options(**options)).place(graph, limits)


def devices_of(placement, op):
    first = placement.graph.first
    return placement.device[first[op] : first[op + 1]].tolist()


@pytest.mark.parametrize("ties", ["parent", "lowest"])
def test_the_papers_worked_example(ties):
    """k = 4, l = 2, D = 3; a, b, c, d in sequence, c cut in 4: only c is not perfectly balanced.

    One circuit goes to the other replica, b's device may reach two peers: c has three devices for
    four parts, two of which share one; d must be near all of them, so it sits where b is.
    """
    limits = placement_limits(4, dp=2, degree=3)
    assert limits.range_hops == 1
    graph = balanced([1, 1, 4, 1], [((0, 0), (1, 0)), *everything(1, 1, 2, 4), *everything(2, 4, 3, 1)])
    placed = Algorithm1(Algorithm1.Options(ties=ties)).place(graph, limits)
    assert devices_of(placed, 0) == devices_of(placed, 1) == devices_of(placed, 3) == [0]
    assert sorted(devices_of(placed, 2)) == [0, 0, 1, 3]
    assert placed.converged
    assert placed.relocations == 0


def test_without_limits_parts_spread_over_all_devices():
    """Electrical networks: the four parts of c take the four devices."""
    graph = balanced([1, 4, 1], [*everything(0, 1, 1, 4), *everything(1, 4, 2, 1)])
    placed = place(graph, 4)
    assert sorted(devices_of(placed, 1)) == [0, 1, 2, 3]


def test_a_sub_op_takes_the_device_that_is_free_first():
    """Parts of 30, 20 and 10 us fill devices 0, 1, 2: the next ones go to 2, then 1."""
    graph = balanced([3, 1, 1], [], duration_us=[30.0, 20.0, 10.0, 20.0, 1.0])
    placed = place(graph, 3)
    assert devices_of(placed, 0) == [0, 1, 2]
    assert devices_of(placed, 1) == [2]
    assert devices_of(placed, 2) == [1]


@pytest.mark.parametrize(("ties", "expected"), [("parent", [2, 1, 0]), ("lowest", [0, 1, 2])])
def test_ties_go_to_the_parent_or_to_the_lowest_index(ties, expected):
    """All devices free at 10 us; part p needs data of part 2 - p only."""
    graph = balanced([3, 3], [((0, 2 - p), (1, p)) for p in range(3)])
    assert devices_of(place(graph, 3, ties=ties), 1) == expected


def test_the_tie_goes_to_the_parent_with_most_bytes():
    """1 byte from device 0, 9 from device 1."""
    graph = balanced([2, 1], everything(0, 2, 1, 1), elements=[1, 9])
    assert devices_of(place(graph, 2), 1) == [1]


def test_followers_sit_with_the_part_they_follow():
    """Backward part p is on the device of forward part p, and a whole one with part 0."""
    graph = balanced([3, 3, 1], [((0, p), (1, p)) for p in range(3)], follows={1: 0, 2: 1})
    placed = place(graph, 3)
    assert devices_of(placed, 0) == devices_of(placed, 1) == [0, 1, 2]
    assert devices_of(placed, 2) == [0]


def test_edges_of_followers_bind_the_ops_they_follow():
    """Two ops exchange data only on the way back: they must still be in range (1 hop of 6)."""
    backward = everything(2, 6, 3, 1)
    graph = balanced([6, 1, 6, 1], backward, follows={2: 0, 3: 1})
    placed = place(graph, 6, 1)
    assert not len(broken_edges(graph, placed.device, placed.limits))


def test_parents_too_far_apart_are_moved():
    """A child of devices 0 and 3 on a circle of 6 with range 1: one parent moves, the visit restarts.

    Nothing holds the parents where they are, so both children and the rest stay balanced.
    """
    graph = balanced([6, 1], [((0, 0), (1, 0)), ((0, 3), (1, 0))])
    placed = place(graph, 6, 1)
    assert placed.converged
    assert placed.relocations > 0
    assert not len(broken_edges(graph, placed.device, placed.limits))


def test_grandparents_follow():
    """0..5 in a chain of pairs: op 1 part p sits with op 0 part p; joining parts 0 and 3 drags them along."""
    graph = balanced([6, 6, 1], [*[((0, p), (1, p)) for p in range(6)], ((1, 0), (2, 0)), ((1, 3), (2, 0))])
    placed = place(graph, 6, 1)
    assert placed.converged
    assert not len(broken_edges(graph, placed.device, placed.limits))


def test_all_to_all_uses_the_window_that_may_talk():
    """Every part needs every part, range 2 of 8: three adjacent devices share the work evenly."""
    graph = balanced([8, 8], everything(0, 8, 1, 8))
    placed = place(graph, 8, 2)
    assert not len(broken_edges(graph, placed.device, placed.limits))
    for op in (0, 1):
        assert np.bincount(devices_of(placed, op), minlength=8).tolist() == [3, 3, 2, 0, 0, 0, 0, 0]


def test_relocation_that_hits_its_bound_says_so():
    """With hardly a visit to spend the window is used, and converged is False."""
    graph = balanced([6, 1], [((0, 0), (1, 0)), ((0, 3), (1, 0))])
    placed = place(graph, 6, 1, visits=1)
    assert not placed.converged
    assert not len(broken_edges(graph, placed.device, placed.limits))


@st.composite
def random_graphs(draw):
    k = draw(st.integers(1, 9))
    parts = draw(st.lists(st.integers(1, k), min_size=1, max_size=9))
    follows = {i: draw(st.integers(0, i - 1)) for i in range(1, len(parts)) if draw(st.integers(0, 3)) == 0}
    pairs = [
        ((a, i), (b, j))
        for b in range(len(parts)) for a in range(b)
        for i in range(parts[a]) for j in range(parts[b])
    ]  # fmt: skip
    edges = draw(st.lists(st.sampled_from(pairs), max_size=60, unique=True)) if pairs else []
    duration = draw(st.lists(st.integers(1, 5), min_size=sum(parts), max_size=sum(parts)))
    graph = balanced(parts, edges, follows=follows, duration_us=np.array(duration, dtype=float))
    return graph, k


@settings(deadline=None, max_examples=300)
@given(case=random_graphs(), range_hops=st.one_of(st.none(), st.integers(0, 4)), visits=st.integers(1, 20),
       ties=st.sampled_from(["parent", "lowest"]))  # fmt: skip
def test_the_limits_hold_for_every_edge(case, range_hops, visits, ties):
    """Whatever the graph, the range and the bound, the final placement keeps the limits."""
    graph, k = case
    placed = place(graph, k, range_hops, ties=ties, visits=visits)
    assert placed.device.shape == (graph.subops,)
    assert ((placed.device >= 0) & (placed.device < k)).all()
    for a, b in zip(placed.device[graph.edge_src], placed.device[graph.edge_dst], strict=True):
        assert placed.limits.allows(int(a), int(b))


@settings(deadline=None, max_examples=200)
@given(case=random_graphs(), range_hops=st.integers(0, 4))
def test_relocation_ends(case, range_hops):
    """Every relocation brings a sub-op closer to device 0 for good: given the visits, it converges."""
    graph, k = case
    assert place(graph, k, range_hops, visits=graph.subops * k + 1).converged


@settings(deadline=None, max_examples=50)
@given(case=random_graphs(), range_hops=st.integers(0, 4))
def test_the_same_graph_is_placed_the_same(case, range_hops):
    """Deterministic."""
    graph, k = case
    first, second = (place(graph, k, range_hops) for _ in range(2))
    assert first.device.tolist() == second.device.tolist()


def test_aligned_puts_equal_slices_together():
    """k = 6: 6 parts on devices 0..5, 3 parts on every second, a follower with the part it follows."""
    graph = balanced([1, 6, 3, 2, 3], [], follows={4: 1})
    placed = Aligned(Aligned.Options()).place(graph, PlacementLimits(devices=6, range_hops=1))
    assert [devices_of(placed, op) for op in range(5)] == [
        [0],
        [0, 1, 2, 3, 4, 5],
        [0, 2, 4],
        [0, 3],
        [0, 1, 2],
    ]


def test_aligned_refuses_what_the_limits_forbid():
    """0 and 2 are two hops apart on a circle of 4."""
    graph = balanced([4, 4], [((0, p), (1, p)) for p in range(4)] + [((0, 0), (1, 2))])
    with pytest.raises(
        InfeasibleError, match=r"1 of 5 edges .* more than 1 hops apart.* use placer 'algorithm1'"
    ):
        Aligned(Aligned.Options()).place(graph, PlacementLimits(devices=4, range_hops=1))
    with pytest.raises(InfeasibleError, match="4 parts, more than the 2 devices"):
        Aligned(Aligned.Options()).place(graph, PlacementLimits(devices=2))


def test_offered_placers():
    """Names are unique and each has a summary and documented options."""
    assert [placer.name for placer in PLACERS] == ["algorithm1", "aligned"]
    for placer in PLACERS:
        assert placer.summary
        assert all(field.metadata["doc"] for field in attrs.fields(placer.Options))
