"""Why a wavelength does not come up."""

import numpy as np
from numpy.typing import NDArray

from hwsim.lanes import State

__all__ = ["NEGATIVE_MARGIN", "why_waiting"]

FloatArray = NDArray[np.float64]
Mask = NDArray[np.bool_]

NEGATIVE_MARGIN = "negative margin"


def why_waiting(
    state: NDArray[np.int8],
    *,
    line: NDArray[np.int64],
    tuning: Mask,
    reachable: Mask,
    late: Mask,
    missing: Mask,
    lit: Mask,
    margin_db: FloatArray,
) -> NDArray[np.object_]:
    """Return what keeps each wavelength from coming up, in words; '' where nothing is known to.

    Parameters
    ----------
    state, line : [wavelengths]
        `State` of each wavelength, and the line that it is asked for.
    tuning : [wavelengths] of bool
        Its heater has got the power for that line.
    reachable : [wavelengths] of bool
        That power lies within the heater's range.
    late : [wavelengths] of bool
        The ring has had more time than any that gets there needs.
    missing, lit : [wavelengths] of bool
        Its line has stayed away for longer than the fibre; its line is there now.
    margin_db : [wavelengths]
        Margin of a receiver; infinite for a transmitter. [dB]

    Examples
    --------
    Two rings that wait for heat, one without light, one with too little, and one that is up:

    >>> yes = np.ones(5, dtype=bool)
    >>> why_waiting(
    ...     np.array([State.TUNING, State.TUNING, State.CDR, State.CDR, State.UP]),
    ...     line=np.arange(5),
    ...     tuning=yes,
    ...     reachable=np.array([False, True, True, True, True]),
    ...     late=yes,
    ...     missing=np.array([False, False, True, False, False]),
    ...     lit=np.array([True, True, False, True, True]),
    ...     margin_db=np.array([3.0, 3.0, 3.0, -1.0, 3.0]),
    ... ).tolist()  # doctest: +NORMALIZE_WHITESPACE
    ['no heater power reaches the line', 'the ring does not reach its line', 'no light on line 2',
     'negative margin', '']
    """
    waits = np.full(state.shape, "", dtype=object)

    moving = (state == State.TUNING) & tuning
    waits[moving & late] = "the ring does not reach its line"
    waits[moving & ~reachable] = "no heater power reaches the line"

    recovering = state == State.CDR
    waits[recovering & lit & (margin_db <= 0.0)] = NEGATIVE_MARGIN
    for where in zip(*np.nonzero(recovering & missing), strict=True):
        waits[where] = f"no light on line {line[where]}"
    return waits
