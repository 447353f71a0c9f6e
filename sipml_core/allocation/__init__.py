"""Which GPUs of a shared cluster a job gets.

In: which GPUs are free, and how many a job needs. Out: the GPUs, or that it has to wait.
Imports `plugin` and what is below it.
"""

from sipml_core.allocation.allocators import Compact, Contiguous, FirstFit, Random
from sipml_core.plugin import Allocator

ALLOCATORS: tuple[type[Allocator], ...] = (FirstFit, Contiguous, Compact, Random)

__all__ = ["ALLOCATORS", "Compact", "Contiguous", "FirstFit", "Random"]
