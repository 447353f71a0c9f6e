"""First-fit, contiguous, compact and random allocations."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import between, frozen, option
from sipml_core.plugin import Allocator


class FirstFit(Allocator):
    """The free GPUs of the lowest numbers, wherever they are."""

    name = "first-fit"
    summary = "the free GPUs of the lowest numbers, wherever they are"

    def allocate(
        self, free: NDArray[np.bool_], gpus: int, *, units: tuple[int, ...], number: int
    ) -> NDArray[np.int32] | None:
        """See `Allocator.allocate`.

        >>> FirstFit(None).allocate(np.array([1, 0, 1, 1], bool), 2, units=(), number=0).tolist()
        [0, 2]
        """
        found = np.flatnonzero(free)[:gpus].astype(np.int32)
        return found if len(found) == gpus else None


class Contiguous(Allocator):
    """A block of GPUs of consecutive numbers: the shortest gap that holds it; else the job waits."""

    name = "contiguous"
    summary = "one block of consecutive GPUs, in the shortest gap that holds it; otherwise the job waits"

    def allocate(
        self, free: NDArray[np.bool_], gpus: int, *, units: tuple[int, ...], number: int
    ) -> NDArray[np.int32] | None:
        """See `Allocator.allocate`.

        >>> free = np.array([1, 1, 1, 0, 1, 1, 0, 1], bool)
        >>> Contiguous(None).allocate(free, 2, units=(), number=0).tolist()
        [4, 5]
        """
        gaps = [(length, start) for start, length in free_runs(free) if length >= gpus]
        if not gaps:
            return None
        start = min(gaps)[1]
        return np.arange(start, start + gpus, dtype=np.int32)


class Compact(Allocator):
    """As few units as can be: the fullest ones that hold the job, or else whole free ones first."""

    name = "compact"
    summary = "as few servers (and racks) as can be, leaving whole ones free"

    def allocate(
        self, free: NDArray[np.bool_], gpus: int, *, units: tuple[int, ...], number: int
    ) -> NDArray[np.int32] | None:
        """See `Allocator.allocate`.

        Three servers of 4, of which 2, 4 and 3 GPUs are free:

        >>> free = np.array([0, 0, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1], bool)
        >>> [Compact(None).allocate(free, n, units=(4,), number=0).tolist() for n in (2, 3, 5)]
        [[2, 3], [9, 10, 11], [4, 5, 6, 7, 2]]
        """
        if free.sum() < gpus:
            return None
        chosen = np.flatnonzero(free)
        for size in reversed(units):
            chosen = _fewest(chosen, gpus, size)
        return chosen[:gpus].astype(np.int32)


def _fewest(gpus: NDArray[np.int64], needed: int, size: int) -> NDArray[np.int64]:
    """Return GPUs of as few units as hold `needed`: the one with just enough, or the fullest first."""
    unit, count = np.unique(gpus // size, return_counts=True)
    chosen: list[int] = []
    left = needed
    while left > 0:
        rest = [(int(n), int(u)) for n, u in zip(count, unit, strict=True) if int(u) not in chosen]
        enough = [each for each in rest if each[0] >= left]
        n, u = min(enough) if enough else max(rest, key=lambda each: (each[0], -each[1]))
        chosen.append(u)
        left -= n
    return np.concatenate([gpus[gpus // size == u] for u in chosen])


class Random(Allocator):
    """Free GPUs drawn at random, in the order of their numbers."""

    name = "random"
    summary = "free GPUs drawn at random"

    @frozen(kw_only=True)
    class Options:
        seed: int = option(0, doc="of the draws", validator=between(0, 2**31 - 1))

    def allocate(
        self, free: NDArray[np.bool_], gpus: int, *, units: tuple[int, ...], number: int
    ) -> NDArray[np.int32] | None:
        """See `Allocator.allocate`."""
        there = np.flatnonzero(free)
        if len(there) < gpus:
            return None
        draw = np.random.default_rng([self.options.seed, number]).choice(there, gpus, replace=False)
        return np.sort(draw).astype(np.int32)


def free_runs(free: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return first GPU and length of each run of free ones.

    >>> free_runs(np.array([1, 0, 1, 1], bool))
    [(0, 1), (2, 2)]
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[0], free.astype(np.int8), [0]])))
    return [(int(a), int(b - a)) for a, b in edges.reshape(-1, 2)]
