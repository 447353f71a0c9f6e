"""What circuits that are planned give a GPU, as prices for the next choice of a layout."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sipml_core.model import CircuitPlan, Prices


def circuit_prices(plan: CircuitPlan, gpu_of: NDArray[np.int32], mp: int, before: Prices) -> Prices:
    """Return the bandwidth that a plan gives a GPU of the first group, inside it and to its counterparts.

    The least over its GPUs, of those that have circuits of the kind; where none has, the price before.

    Parameters
    ----------
    gpu_of
        GPU of each device of each replica. [dp, replica]

    Examples
    --------
    Two groups of two: GPU 0 has 30 Gbps to GPU 1, which has 20 back, and both have 10 to the other group.

    >>> plan = CircuitPlan(gpus=4, src=[0, 0, 1, 1], dst=[1, 2, 0, 3], gbps=[30.0, 10.0, 20.0, 10.0])
    >>> circuit_prices(plan, np.array([[0, 1], [2, 3]]), 2, Prices.flat(40.0))
    Prices(group_gbps=20.0, replica_gbps=10.0)
    """
    group = gpu_of[0, :mp]
    src, dst = (ends.reshape(-1) for ends in np.meshgrid(group, group, indexing="ij"))
    inside = plan.capacity_gbps(src, dst).reshape(mp, mp).sum(axis=1)
    counterparts = gpu_of[1:, :mp]
    across = plan.capacity_gbps(
        np.broadcast_to(group, counterparts.shape).reshape(-1), counterparts.reshape(-1)
    )
    return Prices(
        group_gbps=_least(inside, before.group_gbps),
        replica_gbps=_least(across.reshape(counterparts.shape).sum(axis=0), before.replica_gbps),
    )


def _least(gbps: NDArray[np.float64], otherwise: float) -> float:
    return float(gbps[gbps > 0].min()) if (gbps > 0).any() else otherwise
