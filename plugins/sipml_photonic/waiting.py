"""Pairs that a plan leaves without a circuit, so that the next one can favour who has waited longest."""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import int64_vector


@attrs.frozen(eq=False)
class Waiting:
    """Keys of the pairs that asked and got nothing, in order, and how many plans in a row now. [waiting]"""

    key: NDArray[np.int64] = attrs.field(factory=lambda: np.empty(0, np.int64), converter=int64_vector)
    plans: NDArray[np.int64] = attrs.field(factory=lambda: np.empty(0, np.int64), converter=int64_vector)

    def of(self, key: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many plans in a row have left each pair without. [pairs]

        >>> Waiting(np.array([2, 5]), np.array([1, 3])).of(np.array([5, 4, 2])).tolist()
        [3, 0, 1]
        """
        if not len(self.key):
            return np.zeros(len(key), np.int64)
        at = np.minimum(np.searchsorted(self.key, key), len(self.key) - 1)
        return np.where(self.key[at] == key, self.plans[at], 0)

    def after(self, key: NDArray[np.int64], served: NDArray[np.bool_]) -> Waiting:
        """Return who waits after a plan for pairs of these keys, in order, that serves some of them. [pairs]

        >>> after = Waiting(np.array([2]), np.array([1])).after(np.array([2, 3]), np.array([False, True]))
        >>> after.key.tolist(), after.plans.tolist()
        ([2], [2])
        """
        return Waiting(key[~served], self.of(key)[~served] + 1)
