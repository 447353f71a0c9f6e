"""The suite of allocators: what the core offers passes, and wrong ones are found."""

import numpy as np
import pytest

from sipml_core.allocation import ALLOCATORS, FirstFit
from sipml_core.testing import AllocatorConformance, LawBroken

LAWS = [name for name in dir(AllocatorConformance) if name.startswith("test_")]


def broken(allocator):
    """Names of the laws that break."""
    tried, found = type("Suite", (AllocatorConformance,), {"allocator": allocator})(), []
    for name in LAWS:
        try:
            getattr(tried, name)()
        except LawBroken:
            found.append(name)
    return found


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_allocators_of_the_core_pass(allocator):
    assert broken(allocator) == []


class Taken(FirstFit):
    def allocate(self, free, gpus, *, units, number):
        return np.arange(gpus, dtype=np.int32)


class Short(FirstFit):
    def allocate(self, free, gpus, *, units, number):
        found = super().allocate(free, gpus, units=units, number=number)
        return None if found is None else found[:-1]


class Never(FirstFit):
    def allocate(self, free, gpus, *, units, number):
        return None


class Dice(FirstFit):
    def allocate(self, free, gpus, *, units, number):
        there = np.flatnonzero(free)
        return np.random.default_rng().permutation(there)[:gpus] if len(there) >= gpus else None


class Greedy(FirstFit):
    def allocate(self, free, gpus, *, units, number):
        found = super().allocate(free, gpus, units=units, number=number)
        free[:] = False
        return found


@pytest.mark.parametrize("allocator", [Taken, Short, Never, Dice, Greedy])
def test_wrong_allocators_are_found(allocator):
    assert broken(allocator)
