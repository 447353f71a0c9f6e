"""How tokens spread over the experts of a layer: equally, or with a skew drawn from a seed."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray


@cache
def expert_shares(experts: int, skew: float, seed: int, layer: int) -> NDArray[np.float64]:
    """Return which part of a layer's (token, expert) pairs goes to each expert; they add up to 1. [experts]

    Shares are log-normal: in proportion to exp(skew z), z standard normal, drawn once for each layer; all
    micro-batches, and all GPUs that send, share them. A skew of 0 is perfect balance.

    >>> expert_shares(4, 0.0, 0, 0).tolist()
    [0.25, 0.25, 0.25, 0.25]
    >>> round(float(expert_shares(8, 0.5, 1, 3).sum()), 9)
    1.0
    """
    if skew == 0:
        return np.full(experts, 1.0 / experts)
    drawn = np.exp(skew * np.random.default_rng([seed, layer]).standard_normal(experts))
    return np.asarray(drawn / drawn.sum())


def kept_shares(shares: NDArray[np.float64], capacity_factor: float | None) -> NDArray[np.float64]:
    """Return the part of all pairs that each expert takes where it has room for so many times the mean.

    What is more is dropped. None: nothing is.

    >>> kept_shares(np.array([0.625, 0.125, 0.125, 0.125]), 2.0).tolist()
    [0.5, 0.125, 0.125, 0.125]
    """
    if capacity_factor is None:
        return shares
    return np.minimum(shares, capacity_factor / len(shares))
