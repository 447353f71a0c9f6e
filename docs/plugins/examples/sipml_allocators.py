"""GPUs from the end of the cluster, so that what comes first stays free for others."""

import numpy as np

from sipml_core.plugin import Allocator, hookimpl


class FromTheEnd(Allocator):
    name = "from-the-end"
    summary = "the free GPUs of the highest numbers"

    def allocate(self, free, gpus, *, units, number):
        there = np.flatnonzero(free)
        return there[-gpus:].astype(np.int32) if len(there) >= gpus else None


@hookimpl
def sipml_allocators():
    return [FromTheEnd]
