"""What a call asks of the slots of a port: which of them, and which lines, checked and in full shape."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hwsim.errors import HwsimError

__all__ = ["check_distinct", "lines_of", "slots_of"]

Mask = NDArray[np.bool_]


def slots_of(where: ArrayLike | None, shape: tuple[int, int]) -> Mask:
    """Return the mask of slots that `where` names, all of them for None. [macros, wavelengths]

    >>> slots_of([True, False, False], (2, 3))
    array([[ True, False, False],
           [ True, False, False]])
    """
    mask = np.asarray(True if where is None else where)
    if mask.dtype != bool:
        raise HwsimError(f"where must be a mask of slots, got {where!r}")
    try:
        return np.broadcast_to(mask, shape)
    except ValueError:
        raise HwsimError(f"where must have the shape {shape}, got {mask.shape}") from None


def lines_of(lines: ArrayLike | None, shape: tuple[int, int], *, of_grid: int) -> NDArray[np.int64]:
    """Return the line asked for in each slot, slot k on line k for None. [macros, wavelengths]

    >>> lines_of(None, (2, 3), of_grid=8)
    array([[0, 1, 2],
           [0, 1, 2]])
    >>> lines_of(8, (2, 3), of_grid=8)
    Traceback (most recent call last):
        ...
    hwsim.errors.HwsimError: lines must be at least 0 and at most 7, got 8
    """
    asked = np.asarray(np.arange(shape[1]) if lines is None else lines)
    if asked.dtype.kind not in "iu" or asked.size == 0:
        raise HwsimError(f"lines must be whole numbers, got {lines!r}")
    if asked.min() < 0 or asked.max() >= of_grid:
        wrong = asked[(asked < 0) | (asked >= of_grid)][0]
        raise HwsimError(f"lines must be at least 0 and at most {of_grid - 1}, got {wrong}")
    try:
        return np.broadcast_to(asked, shape)
    except ValueError:
        raise HwsimError(f"lines must have the shape {shape}, got {asked.shape}") from None


def check_distinct(line: NDArray[np.int64], wanted: Mask) -> None:
    """Refuse two slots of one macro on one line. Both arrays are [macros, wavelengths]; slots that are not
    `wanted` may have any line."""
    for macro in range(len(line)):
        # Lines in use by the macro, each once, and by how many of its slots.
        values, counts = np.unique(line[macro][wanted[macro]], return_counts=True)
        if (counts > 1).any():
            raise HwsimError(
                f"lines must differ within a macro, got line {values[counts > 1][0]} twice in macro {macro}"
            )
