"""The one wrapper of HiGHS, on programmes solved by hand."""

import numpy as np
import pytest

from sipml_core.errors import SipmlError
from sipml_core.scheduling.programme import maximise


def two_products(integer, **changes):
    """Maximise 5 x + 4 y with 6 x + 4 y <= 24 and x + 2 y <= 6."""
    arguments = {
        "objective": np.array([5.0, 4.0]),
        "entries": [(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), np.array([6.0, 4.0, 1.0, 2.0]))],
        "row_lower": np.full(2, -np.inf),
        "row_upper": np.array([24.0, 6.0]),
        "upper": np.full(2, np.inf),
        "integer": None if integer is None else np.array(integer),
    }
    return maximise(**(arguments | changes))


def test_whole_numbers_are_solved_to_optimality():
    """(4, 0) is worth 20; (3, 1) 19, (2, 2) 18, (0, 3) 12."""
    found = two_products([True, True])
    assert found.values.tolist() == [4.0, 0.0]
    assert (found.optimal, found.bound) == (True, 20.0)


@pytest.mark.parametrize(
    ("integer", "values", "bound"), [(None, [3, 1.5], 21), ([False, True], [10 / 3, 1], 62 / 3)]
)
def test_fractions_are_allowed_where_asked(integer, values, bound):
    """Both limits hold with equality at (3, 1.5); with y whole, x = (24 - 4) / 6 beside y = 1 is best."""
    found = two_products(integer)
    np.testing.assert_allclose(found.values, values, rtol=1e-9)
    assert found.bound == pytest.approx(bound)


def test_limits_of_columns_and_a_start_are_kept():
    """With y at least 1 and x at most 2: (2, 2), worth 18."""
    limits = {"lower": np.array([0.0, 1.0]), "upper": np.array([2.0, 9.0]), "start": np.array([1.0, 1.0])}
    assert two_products([True, True], **limits).values.tolist() == [2.0, 2.0]


def test_entries_at_the_same_place_are_added():
    """x <= 24 written as 2 x + 4 x: at most 4, and nothing of y."""
    twice = [(np.array([0, 0, 1]), np.array([0, 0, 1]), np.array([2.0, 4.0, 1.0]))]
    assert two_products([True, True], entries=twice, row_upper=np.array([24.0, 0.0])).values.tolist() == [
        4,
        0,
    ]


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"row_lower": np.array([25.0, -np.inf])}, "infeasible"),
        ({"row_upper": np.full(2, np.inf)}, "unbounded"),
    ],
)
def test_what_has_no_solution_is_refused_in_one_line(changes, status):
    with pytest.raises(
        SipmlError, match=f"^HiGHS cannot solve a programme of 2 rows and 2 columns: .*{status}"
    ):
        two_products([True, True], **changes)


def test_without_time_nothing_is_optimal():
    """A knapsack of 60 unlike things takes longer than no time at all: no claim, and no error."""
    rng = np.random.default_rng(0)
    weight = rng.integers(1000, 2000, 60).astype(float)
    found = maximise(
        objective=weight + rng.integers(1, 9, 60),
        entries=[(np.zeros(60, int), np.arange(60), weight)],
        row_lower=np.array([-np.inf]),
        row_upper=np.array([45001.5]),
        upper=np.ones(60),
        integer=np.ones(60, bool),
        time_limit_s=0.0,
    )
    assert not found.optimal
