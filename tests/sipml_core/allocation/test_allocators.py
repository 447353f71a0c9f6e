"""What each allocator gives a job on a crowded cluster."""

import numpy as np
import pytest

from sipml_core.allocation import ALLOCATORS, Compact, Contiguous, FirstFit, Random


def given(allocator, taken, gpus, size=12, units=(4,), number=0):
    free = np.ones(size, bool)
    free[list(taken)] = False
    found = allocator(allocator.Options()).allocate(free, gpus, units=units, number=number)
    return None if found is None else found.tolist()


def test_first_fit_takes_the_lowest_numbers():
    assert given(FirstFit, {0, 3}, 4) == [1, 2, 4, 5]


def test_contiguous_takes_the_shortest_gap_or_waits():
    """Gaps of 3 (1 to 3), 2 (5, 6) and 4 (8 to 11)."""
    assert given(Contiguous, {0, 4, 7}, 2) == [5, 6]
    assert given(Contiguous, {0, 4, 7}, 4) == [8, 9, 10, 11]
    assert given(Contiguous, {0, 4, 7}, 5) is None


def test_compact_fills_the_server_that_has_just_enough():
    """Free: 2 in server 0, 3 in server 1, 4 in server 2. Three GPUs go to server 1, five to 2 and then 0."""
    taken = {0, 1, 4}
    assert given(Compact, taken, 3) == [5, 6, 7]
    assert given(Compact, taken, 5) == [8, 9, 10, 11, 2]


def test_compact_keeps_to_one_rack():
    """Racks of 8 GPUs, servers of 4. Free: 3 and 1 in rack 0, just enough for four; six need rack 1."""
    assert given(Compact, {0, 4, 5, 6}, 4, size=16, units=(4, 8)) == [1, 2, 3, 7]
    assert given(Compact, {0, 4, 5, 6}, 6, size=16, units=(4, 8)) == [8, 9, 10, 11, 12, 13]


def test_random_draws_another_set_for_another_job():
    draws = [given(Random, set(), 6, size=60, number=number) for number in range(3)]
    assert len({tuple(draw) for draw in draws}) == 3
    assert draws[0] == sorted(draws[0])


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_a_job_larger_than_what_is_free_waits(allocator):
    assert given(allocator, {0}, 12) is None
