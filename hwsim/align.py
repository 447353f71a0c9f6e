"""Word alignment: bits of one word travel on several wavelengths and wait for the slowest."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["WordAlignment"]

Mask = NDArray[np.bool_]


class WordAlignment:
    """Which receiving wavelengths carry words. Masks are [macros, wavelengths].

    Wavelengths of a macro that were tuned together carry words together: none does before all of them that
    can are up, and `ticks` steps more. Those of an earlier command carry on undisturbed.
    """

    def __init__(self, *, shape: tuple[int, int], ticks: int) -> None:
        self.aligned = np.zeros(shape, dtype=bool)
        self._ticks = ticks
        self._waited = np.zeros(shape, dtype=np.int64)
        self._group = np.zeros(shape, dtype=np.int64)

    def group(self, lanes: Mask) -> None:
        """These were tuned together."""
        self._group[lanes] = self._group.max() + 1

    def step(self, *, up: Mask, coming: Mask) -> None:
        """One step later: which lanes are up, and which are not yet and nothing is known against them."""
        together = self._group[:, :, np.newaxis] == self._group[:, np.newaxis, :]
        waiting_for_others = (together & coming[:, np.newaxis, :]).any(axis=-1)
        ready = up & (self.aligned | ~waiting_for_others)
        self._waited = np.where(ready, self._waited + 1, 0)
        self.aligned = ready & (self._waited > self._ticks)
