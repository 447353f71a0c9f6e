"""Laws for any traffic: exactness against enumeration and HiGHS, valid permutations, stability."""

import heapq
from fractions import Fraction

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sipml_ocs import plan
from sipml_ocs.kernel import Problem

from sipml_core.model.traffic import TrafficMatrix


@st.composite
def matrices(draw, max_gpus=9):
    """Sparse matrices of whole demands, from a single GPU on."""
    gpus = draw(st.integers(1, max_gpus))
    pairs = draw(
        st.dictionaries(
            st.tuples(st.integers(0, gpus - 1), st.integers(0, gpus - 1)).filter(lambda p: p[0] != p[1]),
            st.integers(1, 1000),
            max_size=min(gpus * (gpus - 1), 40),
        )
        if gpus > 1
        else st.just({})
    )
    src, dst = ([pair[end] for pair in pairs] for end in (0, 1))
    return TrafficMatrix.from_pairs(gpus, src, dst, list(pairs.values()))


def random_traffic(rng, gpus, pairs_per_gpu):
    dense = np.zeros((gpus, gpus))
    for _ in range(pairs_per_gpu):
        dense[np.arange(gpus), rng.permutation(gpus)] = rng.lognormal(0, 1.5, gpus)
    np.fill_diagonal(dense, 0)
    return TrafficMatrix.from_dense(dense)


def peers(traffic):
    """The most circuits that any port needs, one for each pair."""
    return max(np.bincount(traffic.src, minlength=1).max(), np.bincount(traffic.dst, minlength=1).max())


def best_ratio(traffic, switches):
    """The best least circuits / demand, in fractions, by trying every ratio that can be one."""
    demand = [Fraction(int(d)) for d in traffic.demand]

    def fits(ratio):
        used = [0] * (2 * traffic.gpus)
        for i, j, d in zip(traffic.src, traffic.dst, demand, strict=True):
            needed = -((-ratio * d) // 1)
            used[i] += needed
            used[traffic.gpus + j] += needed
        return max(used) <= switches

    return max(r for r in {k / d for d in demand for k in range(1, switches + 1)} if fits(r))


@settings(max_examples=150, deadline=None)
@given(matrices(max_gpus=6), st.integers(1, 9))
def test_the_minimum_is_the_best_of_all_possible_ratios(traffic, switches):
    """The least circuits / demand equals the optimum found by enumeration in exact fractions."""
    if traffic.pairs == 0 or peers(traffic) > switches:
        return
    made = plan(traffic, switches=switches, link_gbps=1)
    ratio = min(Fraction(int(n), int(d)) for n, d in zip(made.circuits, traffic.demand, strict=True))
    assert ratio == best_ratio(traffic, switches)


@settings(max_examples=150, deadline=None)
@given(matrices(), st.integers(1, 9), st.none() | matrices())
def test_every_plan_keeps_its_promises(traffic, switches, before):
    """Partial permutations that hold just the circuits, nothing idle, unserved pairs named; with or
    without a previous plan; and never above the LP bound."""
    previous = None
    if before is not None:
        previous = plan(attrs.evolve(before, gpus=9), switches=switches, link_gbps=2)
    made = plan(attrs.evolve(traffic, gpus=9), switches=switches, link_gbps=2, previous=previous)
    made.check()
    assert traffic.pairs == 0 or made.minimum_ratio <= made.bound_ratio * (1 + 1e-12)


@settings(max_examples=100, deadline=None)
@given(matrices(), st.integers(1, 9), st.none() | matrices())
def test_the_same_demand_again_changes_nothing(traffic, switches, before):
    """Whatever was there before, planning twice for the same demand is planning once (unless pairs wait)."""
    if peers(traffic) > switches:
        return
    previous = None
    if before is not None:
        previous = plan(attrs.evolve(before, gpus=9), switches=switches, link_gbps=1)
    traffic = attrs.evolve(traffic, gpus=9)
    first = plan(traffic, switches=switches, link_gbps=1, previous=previous)
    again = plan(traffic, switches=switches, link_gbps=1, previous=first)
    assert np.array_equal(first.port_map, again.port_map)
    assert np.array_equal(again.kept, again.circuits)


@settings(max_examples=60, deadline=None)
@given(matrices(), st.integers(1, 9), st.integers(-40, 40))
def test_only_ratios_of_demand_matter(traffic, switches, exponent):
    """Demands times a power of two (exact in floating point) give the same plan."""
    scaled = attrs.evolve(traffic, demand=traffic.demand * 2.0**exponent)
    one, other = (plan(t, switches=switches, link_gbps=1) for t in (traffic, scaled))
    assert np.array_equal(one.port_map, other.port_map)


@settings(max_examples=60, deadline=None)
@given(matrices(), st.integers(1, 9))
def test_kept_counts_what_is_on_the_same_switch_in_both_plans(traffic, switches):
    rng = np.random.default_rng(traffic.pairs)
    first = plan(traffic, switches=switches, link_gbps=1)
    moved = attrs.evolve(traffic, demand=traffic.demand * rng.uniform(0.5, 2, traffic.pairs))
    second = plan(moved, switches=switches, link_gbps=1, previous=first)
    same = (second.port_map == first.port_map) & (second.port_map >= 0)
    assert second.kept.sum() == same.sum()
    for i, j, kept in zip(second.src, second.dst, second.kept, strict=True):
        assert kept == (same & (second.port_map == j))[:, i].sum()


def filled_plainly(traffic, switches, circuits):
    """Progressive filling as it is stated: the pair with the least circuits / demand that has room."""
    circuits = circuits.tolist()
    out, into = [0] * traffic.gpus, [0] * traffic.gpus
    for i, j, n in zip(traffic.src, traffic.dst, circuits, strict=True):
        out[i] += n
        into[j] += n
    share = (traffic.demand / traffic.demand.max()).tolist()
    heap = [(n / share[p], p) for p, n in enumerate(circuits)]
    heapq.heapify(heap)
    while heap:
        _, p = heapq.heappop(heap)
        i, j = traffic.src[p], traffic.dst[p]
        if out[i] < switches and into[j] < switches:
            circuits[p] += 1
            out[i] += 1
            into[j] += 1
            heapq.heappush(heap, (circuits[p] / share[p], p))
    return circuits


@pytest.mark.parametrize("seed", range(20))
def test_the_kernel_fills_as_plain_python_does(seed):
    rng = np.random.default_rng(seed)
    traffic, switches = random_traffic(rng, 40, 5), 8
    problem = Problem(traffic, switches)
    fewest = problem.maxmin()
    assert problem.fill(fewest, None).tolist() == filled_plainly(traffic, switches, fewest)


def compare_with_highs(seed, max_gpus):
    """The bisection and HiGHS find the same optimum, and hence the same plan."""
    rng = np.random.default_rng(seed)
    gpus, switches = int(rng.integers(2, max_gpus + 1)), int(rng.integers(2, 9))
    traffic = random_traffic(rng, gpus, int(rng.integers(1, switches + 1)))
    exact = plan(traffic, switches=switches, link_gbps=1)
    ilp = plan(traffic, switches=switches, link_gbps=1, algorithm="ocs-ilp")
    assert ilp.proved
    assert exact.minimum_ratio == pytest.approx(ilp.minimum_ratio, rel=1e-9)
    assert np.array_equal(exact.port_map, ilp.port_map)


def test_the_minimum_equals_highs_on_300_random_instances():
    for seed in range(300):
        compare_with_highs(seed, max_gpus=12)


@pytest.mark.slow
def test_the_minimum_equals_highs_on_2000_larger_instances():
    for seed in range(1000, 3000):
        compare_with_highs(seed, max_gpus=24)


@pytest.mark.parametrize("seed", range(15))
def test_the_minimum_equals_the_papers_programme_with_every_switch_spelt_out(seed):
    rng = np.random.default_rng(seed)
    gpus, switches = int(rng.integers(2, 6)), int(rng.integers(1, 4))
    traffic = random_traffic(rng, gpus, switches)
    exact = plan(traffic, switches=switches, link_gbps=1)
    spelt = plan(traffic, switches=switches, link_gbps=1, algorithm="ocs-ilp", formulation="permutations")
    assert spelt.proved
    assert exact.minimum_ratio == pytest.approx(spelt.minimum_ratio, rel=1e-9)


def test_highs_without_time_says_that_nothing_is_proved():
    """The plan is still valid: one circuit for each pair, and the leftovers."""
    traffic = random_traffic(np.random.default_rng(0), 40, 6)
    made = plan(traffic, switches=16, link_gbps=1, algorithm="ocs-ilp", time_limit_s=1e-9)
    made.check()
    assert not made.proved


def test_most_circuits_stay_when_demand_drifts():
    """Demand within 25 %: far more stay than with a colouring that does not look at the previous plan."""
    rng = np.random.default_rng(3)
    traffic = random_traffic(rng, 128, 8)
    first = plan(traffic, switches=16, link_gbps=1)
    drifted = attrs.evolve(traffic, demand=traffic.demand * rng.uniform(0.8, 1.25, traffic.pairs))
    second = plan(drifted, switches=16, link_gbps=1, previous=first)
    fresh = plan(drifted, switches=16, link_gbps=1)
    by_chance = ((fresh.port_map == first.port_map) & (fresh.port_map >= 0)).sum()
    possible = np.minimum(first.circuits, second.circuits).sum()
    assert second.kept.sum() > 0.6 * possible
    assert second.kept.sum() > 2 * by_chance
    assert second.minimum_ratio == fresh.minimum_ratio


def test_the_same_input_gives_the_same_bytes():
    traffic = random_traffic(np.random.default_rng(1), 200, 9)
    one, other = (plan(traffic, switches=16, link_gbps=1) for _ in range(2))
    assert one.port_map.tobytes() == other.port_map.tobytes()
