"""Choices by a hash, as switches make them: the same for the same flow, spread evenly over flows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return 64 bits each of which depends on every bit of `x`.

    SplitMix64's finalizer (Steele, Lea, Flood 2014).
    """
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def hashed_choice(flow: NDArray[np.int64], choices: int, salt: int = 0) -> NDArray[np.int64]:
    """Return one of ``0 .. choices - 1`` for each flow; another salt gives another, independent choice.

    >>> flow = np.arange(1000)
    >>> bool((np.bincount(hashed_choice(flow, 4)) > 200).all())
    True
    >>> bool(200 < (hashed_choice(flow, 4) == hashed_choice(flow, 4, salt=1)).sum() < 300)
    True
    """
    salted = np.asarray(flow).astype(np.uint64) ^ mixed(np.array([salt], np.uint64))
    return (mixed(salted) % np.uint64(choices)).astype(np.int64)
