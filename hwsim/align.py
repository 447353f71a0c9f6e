"""Word alignment: a word is spread over wavelengths, and its bits wait for the slowest of them."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["WordAlignment"]

Mask = NDArray[np.bool_]


class WordAlignment:
    """Tells which receiving wavelengths carry words. Masks are [macros, wavelengths].

    Wavelengths of a macro that were tuned together carry words together: none does before all of them that
    can are up, and `ticks` steps more. Those of an earlier command carry on undisturbed.

    Examples
    --------
    Three wavelengths of one macro, of which 0 and 1 are tuned together; they take one step to align. While
    wavelength 1 is still pending, wavelength 0 waits for it:

    >>> words = WordAlignment(shape=(1, 3), ticks=1)
    >>> words.group(np.array([[True, True, False]]))
    >>> for wait in (True, False, False):
    ...     words.step(up=np.array([[True, not wait, False]]), pending=np.array([[False, wait, False]]))
    ...     print(words.aligned[0].tolist())
    [False, False, False]
    [False, False, False]
    [True, True, False]
    """

    def __init__(self, *, shape: tuple[int, int], ticks: int) -> None:
        self.aligned = np.zeros(shape, dtype=bool)
        self._ticks = ticks
        # Steps for which each wavelength has been ready.
        self._waited = np.zeros(shape, dtype=np.int64)
        # Number of the command that tuned each wavelength last.
        self._group = np.zeros(shape, dtype=np.int64)

    def group(self, lanes: Mask) -> None:
        """Note that these were tuned together, by one command."""
        self._group[lanes] = self._group.max() + 1

    def step(self, *, up: Mask, pending: Mask) -> None:
        """Update `aligned` after one more step: which wavelengths are up, which are still expected."""
        # [macros, wavelengths, wavelengths]: whether two wavelengths of a macro were tuned by one command.
        together = self._group[:, :, np.newaxis] == self._group[:, np.newaxis, :]
        waiting_for_others = (together & pending[:, np.newaxis, :]).any(axis=-1)

        ready = up & (self.aligned | ~waiting_for_others)
        self._waited = np.where(ready, self._waited + 1, 0)
        self.aligned = ready & (self._waited > self._ticks)
