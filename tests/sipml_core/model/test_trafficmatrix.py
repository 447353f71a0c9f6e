"""Traffic that is no matrix of numbers is told in one line."""

import numpy as np
import pytest

from sipml_core.errors import ConfigError
from sipml_core.model import TrafficMatrix


@pytest.mark.parametrize(
    ("matrix", "told"),
    [
        ([[0, 1], [1]], r"of numbers in rows of one length, got \[\[0, 1\], \[1\]\]"),
        ([[0, "x"], [1, 0]], r"of numbers in rows of one length, got \[\[0, 'x'\], \[1, 0\]\]"),
        ([[0, 1, 2], [1, 0, 2]], r"must be square, got shape \(2, 3\)"),
        (5, r"must be square, got shape \(\)"),
    ],
)
def test_what_is_no_square_of_numbers_is_refused(matrix, told):
    with pytest.raises(ConfigError, match=told) as error:
        TrafficMatrix.from_dense(matrix)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        (([0, 1], [1], [1.0]), "as many senders, receivers and demands, got 2, 1 and 1"),
        (([0], [1], [1.0, 2.0]), "as many senders, receivers and demands, got 1, 1 and 2"),
        ((["a"], [1], [1.0]), r"senders must be a list of numbers, got \['a'\]"),
        (([0], 1, [1.0]), "receivers must be a list of numbers, got 1"),
        (
            ([0], [1], [[1.0], [2.0, 3.0]]),
            r"demands must be a list of numbers, got \[\[1.0\], \[2.0, 3.0\]\]",
        ),
    ],
)
def test_pairs_of_unlike_lengths_are_refused(columns, told):
    with pytest.raises(ConfigError, match=told):
        TrafficMatrix.from_pairs(3, *columns)


def test_a_dense_matrix_and_its_pairs_are_the_same():
    """Rows send; what is repeated is added, and a demand of zero is none."""
    made = TrafficMatrix.from_pairs(3, [2, 0, 0, 1], [0, 1, 1, 2], [5.0, 1.0, 2.0, 0.0])
    assert np.array_equal(made.dense(), [[0, 3, 0], [0, 0, 0], [5, 0, 0]])
    assert TrafficMatrix.from_dense(made.dense()).key.tolist() == [1, 6]
