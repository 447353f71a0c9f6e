"""Light on its way between two ports."""

from collections import deque

import numpy as np
from numpy.typing import NDArray

__all__ = ["FIBRE_NS_PER_M", "Fibre"]

Mask = NDArray[np.bool_]

#: Light in fibre, group index 1.468. [ns/m]
FIBRE_NS_PER_M = 4.9


class Fibre:
    """One direction of a fibre: lines that are sent arrive a whole number of steps later, the nearest to
    `length_m` times 4.9 ns/m; a fibre shorter than half a step delays nothing.

    Examples
    --------
    41 m are 200 ns, two steps of 0.1 us:

    >>> fibre = Fibre(length_m=41.0, shape=(1, 2), step_us=0.1)
    >>> arrived = []
    >>> for line_1_is_lit in (True, False, False, False):
    ...     fibre.send(np.array([[False, line_1_is_lit]]))
    ...     arrived.append(bool(fibre.arriving[0, 1]))
    >>> arrived
    [False, False, True, False]
    """

    def __init__(self, *, length_m: float, shape: tuple[int, int], step_us: float) -> None:
        steps = round(FIBRE_NS_PER_M * 1e-3 * length_m / step_us)
        # Lit lines [macros, lines] as sent in the last steps, the oldest first: that is what arrives now.
        self._in_flight: deque[Mask] = deque([np.zeros(shape, dtype=bool)] * (steps + 1), maxlen=steps + 1)

    def send(self, lit: Mask) -> None:
        """Put the lines that are lit in this step on the fibre. [macros, lines]"""
        self._in_flight.append(lit)

    @property
    def arriving(self) -> Mask:
        """Lines that carry light at the far end of the fibre. [macros, lines]"""
        return self._in_flight[0]

    @property
    def steps(self) -> int:
        """Steps from one in which light is sent to the one after it arrives; at least 1."""
        return len(self._in_flight)
