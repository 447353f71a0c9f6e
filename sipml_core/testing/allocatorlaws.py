"""Laws of allocators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sipml_core.plugin import Allocator
from sipml_core.testing.laws import ComponentConformance, law, require

#: pytest leaves the frames of this file out, so that the law's sentence comes first.
__tracebackhide__ = True


class AllocatorConformance(ComponentConformance):
    """Laws of an allocator: set `allocator`, and its `options` if some are required."""

    allocator: ClassVar[type[Allocator]]
    #: Clusters that are tried.
    sizes: ClassVar[tuple[int, ...]] = (1, 7, 24)
    #: GPUs of each kind of unit that clusters are tried with.
    units: ClassVar[tuple[tuple[int, ...], ...]] = ((), (4,), (2, 8))

    @property
    def component(self) -> type[Any]:
        return self.allocator

    def exercise(self, component: Any) -> None:
        component.allocate(np.ones(4, bool), 2, units=(), number=0)

    def requests(self) -> Iterator[tuple[NDArray[np.bool_], int, tuple[int, ...]]]:
        """Which GPUs are free, how many are needed, units: empty, crowded and full clusters."""
        rng = np.random.default_rng(0)
        for size in self.sizes:
            for share in (1.0, 0.6, 0.2, 0.0):
                free = rng.random(size) < share
                for needed in sorted({1, 2, size // 2, size} - {0}):
                    for units in self.units:
                        yield free, needed, units

    def test_a_job_gets_as_many_free_gpus_as_it_needs(self) -> None:
        found = 0
        for free, needed, units in self.requests():
            before = free.copy()
            with law(
                "what is returned are free GPUs, each once", free=int(free.sum()), needed=needed, units=units
            ):
                got = self.make().allocate(free, needed, units=units, number=0)
                require(bool((free == before).all()), "it changed which are free")
                if got is None:
                    continue
                got = np.asarray(got)
                require(len(got) == needed, f"{len(got)} GPUs")
                require(len(set(got.tolist())) == needed, f"{got.tolist()} names one twice")
                inside = bool((got >= 0).all() and (got < len(free)).all())
                require(inside and bool(free[got].all()), f"{got.tolist()} are not all free")
            found += 1
        with law("some job gets its GPUs"):
            require(found, "all had to wait")

    def test_a_job_as_large_as_an_empty_cluster_gets_it(self) -> None:
        for size in self.sizes:
            with law("an empty cluster holds a job of its size", gpus=size):
                got = self.make().allocate(np.ones(size, bool), size, units=(), number=0)
                require(got is not None, "it has to wait")

    def test_the_same_request_gets_the_same_gpus(self) -> None:
        for free, needed, units in self.requests():
            with law("an answer depends on the arguments only", needed=needed, units=units):
                first, again = (self.make().allocate(free, needed, units=units, number=3) for _ in range(2))
                same = (first is None) == (again is None) and (
                    first is None or np.asarray(first).tolist() == np.asarray(again).tolist()
                )
                require(same, f"{first}, then {again}")
