"""Variable elimination against trying every combination."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sipml_core.partition.elimination import minimise, minimise_each


def total(single, pairs, choice):
    return sum(t[c] for t, c in zip(single, choice, strict=True)) + sum(
        table[choice[u], choice[v]] for (u, v), table in pairs.items()
    )


def random_problem(seed, variables, edges):
    generator = np.random.default_rng(seed)
    single = [generator.integers(0, 20, generator.integers(1, 4)).astype(float) for _ in range(variables)]
    possible = list(itertools.combinations(range(variables), 2))
    picked = generator.permutation(len(possible))[:edges]
    pairs = {
        possible[p]: generator.integers(0, 20, (len(single[possible[p][0]]), len(single[possible[p][1]])))
        for p in picked
    }
    return single, pairs


@settings(deadline=None, max_examples=100)
@given(seed=st.integers(0, 10**6), variables=st.integers(1, 7), edges=st.integers(0, 21))
def test_no_combination_is_better(seed, variables, edges):
    """Exact on any graph whose tables fit."""
    single, pairs = random_problem(seed, variables, edges)
    every = itertools.product(*(range(len(t)) for t in single))
    assert total(single, pairs, minimise(single, pairs)) == min(total(single, pairs, c) for c in every)


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 10**6))
def test_an_entangled_graph_still_gets_a_choice(seed):
    """With room for no table at all, variables are settled one by one; each choice exists."""
    single, pairs = random_problem(seed, 7, 21)
    choice = minimise(single, pairs, max_table=1)
    assert all(0 <= c < len(t) for c, t in zip(choice, single, strict=True))


def test_a_long_chain_with_a_skip():
    """300 variables that want to agree, tied to a first one that is pulled to choice 2."""
    single = [np.array([0.0, 0.0, 0.0]) for _ in range(300)]
    single[0] = np.array([5.0, 5.0, 0.0])
    differ = 1.0 - np.eye(3)
    pairs = {(i, i + 1): differ for i in range(299)} | {(0, 299): differ, (50, 90): differ}
    assert minimise(single, pairs) == [2] * 300
    assert minimise([], {}) == []


def test_a_hundred_neighbours_without_a_choice():
    """What has one choice needs no axis: more neighbours than an array has axes (64), each with a say."""
    single = [np.array([2.5, 0.0]), *(np.array([1.0]) for _ in range(100))]
    each = np.array([[0.0], [0.02]])
    assert minimise(single, {(0, other): each for other in range(1, 101)}) == [1] + [0] * 100
    assert minimise(single, {(0, other): 2 * each for other in range(1, 101)}) == [0] + [0] * 100


def test_equal_choices_go_to_the_first():
    """Deterministic ties."""
    assert minimise([np.zeros(3), np.zeros(2)], {(0, 1): np.zeros((3, 2))}) == [0, 0]


@settings(deadline=None, max_examples=100)
@given(seed=st.integers(0, 10**6), max_table=st.sampled_from([1, 20, 1 << 20]))
def test_several_problems_at_once_are_solved_as_each_alone(seed, max_table):
    """Problems that differ in single costs only, with fractions that add up differently in another order."""
    generator = np.random.default_rng(seed)
    single, pairs = random_problem(seed, 7, 12)
    pairs = {ends: table + generator.random(table.shape) for ends, table in pairs.items()}
    singles = [
        [costs * weight + generator.random(len(costs)) for costs in single] for weight in (0.0, 0.3, 5.0)
    ]
    alone = [minimise(each, pairs, max_table=max_table) for each in singles]
    assert minimise_each(singles, pairs, max_table=max_table) == alone
