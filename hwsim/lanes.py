"""The life of a wavelength: DARK, TUNING, LOCKING, CDR, UP."""

from enum import IntEnum

import attrs
import numpy as np
from numpy.typing import NDArray

from hwsim.errors import within

__all__ = ["Lanes", "LinkTiming", "State"]

Mask = NDArray[np.bool_]


class State(IntEnum):
    """Where a wavelength stands."""

    #: No line asked for; the ring is parked between lines.
    DARK = 0
    #: A line is asked for and the ring is not within tolerance of it.
    TUNING = 1
    #: Within tolerance, which must hold for `LinkTiming.lock_us`.
    LOCKING = 2
    #: Held; light and margin must be there, and a receiver recovers clock and data.
    CDR = 3
    #: Bits pass.
    UP = 4


@attrs.frozen(kw_only=True)
class LinkTiming:
    """Times that are not physics of the ring. All are assumptions, none is fitted to the paper's 25 us."""

    #: From the decision to new heater powers: a controller that writes them every microsecond. [us]
    control_us: float = attrs.field(default=1.0, validator=within(at_least=0.0))
    #: How long a ring must stay within tolerance: two more samples at 1 us. [us]
    lock_us: float = attrs.field(default=2.0, validator=within(at_least=0.0))
    #: Clock and data recovery, with the clock forwarded. [us] The receivers of Mordia took 8.7 us.
    cdr_us: float = attrs.field(default=1.0, validator=within(at_least=0.0))
    #: Word alignment across a macro once its wavelengths are up. [us]
    align_us: float = attrs.field(default=0.5, validator=within(at_least=0.0))

    def ticks(self, stage: str, step_us: float) -> int:
        """Return the whole steps that `stage` takes; a part of a step counts as one.

        >>> LinkTiming(lock_us=2.0).ticks("lock", 0.3)
        7
        """
        return int(np.ceil(getattr(self, f"{stage}_us") / step_us - 1e-9))


class Lanes:
    """State machines of many wavelengths, moved together once for each step of the rings.

    Parameters
    ----------
    recovers : [lanes] of bool
        Which lanes are receivers, and so spend `timing.cdr_us` in CDR. A transmitter passes it in no time.

    Examples
    --------
    A transmitter and a receiver, both within tolerance from the first step; 2 us of lock, 1 us of recovery:

    >>> lanes = Lanes(recovers=np.array([False, True]), timing=LinkTiming(), step_us=1.0)
    >>> yes = np.array([True, True])
    >>> lanes.command(yes)
    >>> lanes.set_heaters(yes)
    >>> for _ in range(4):
    ...     lanes.step(locked=yes, clear=yes)
    ...     print([State(state).name for state in lanes.state])
    ['LOCKING', 'LOCKING']
    ['LOCKING', 'LOCKING']
    ['UP', 'CDR']
    ['UP', 'UP']
    """

    def __init__(self, *, recovers: Mask, timing: LinkTiming, step_us: float) -> None:
        self.state = np.full(recovers.shape, State.DARK, dtype=np.int8)
        self._lock_ticks = timing.ticks("lock", step_us)
        self._cdr_ticks = np.where(recovers, timing.ticks("cdr", step_us), 0)
        #: Whether the heaters have got the powers for the line that was asked for last. [lanes]
        self.heaters_set = np.zeros(recovers.shape, dtype=bool)
        # Step at which each lane entered its state; in TUNING, at which its heater was set. [lanes]
        self._since = np.zeros(recovers.shape, dtype=np.int64)
        self._tick = 0

    def command(self, lanes: Mask) -> None:
        """Ask for a line; heaters still have the powers of the old one."""
        self._move(lanes, State.TUNING)
        self.heaters_set[lanes] = False

    def set_heaters(self, lanes: Mask) -> None:
        """Note that heaters have got their new powers: from now on a lock is a lock on the new line."""
        self.heaters_set[lanes] = True
        self._since[lanes] = self._tick

    def darken(self, lanes: Mask) -> None:
        """Give up the lines."""
        self._move(lanes, State.DARK)

    @property
    def ticks_in_state(self) -> NDArray[np.int64]:
        """Steps since each lane entered its state; in TUNING, since its heater was set. [lanes]"""
        return self._tick - self._since

    def step(self, *, locked: Mask, clear: Mask) -> None:
        """Move each lane on by one step; one lane may pass several states.

        Parameters
        ----------
        locked : [lanes] of bool
            The ring is within tolerance.
        clear : [lanes] of bool
            Light arrives, with margin.
        """
        self._tick += 1
        state = self.state  # changed by each move below, so that the next one sees it
        self._move((state > State.TUNING) & ~locked, State.TUNING)
        self._move((state == State.TUNING) & self.heaters_set & locked, State.LOCKING)
        self._move((state == State.LOCKING) & (self.ticks_in_state >= self._lock_ticks), State.CDR)
        self._move((state == State.UP) & ~clear, State.CDR)
        self._since[(state == State.CDR) & ~clear] = self._tick
        self._move((state == State.CDR) & clear & (self.ticks_in_state >= self._cdr_ticks), State.UP)

    def _move(self, lanes: Mask, state: State) -> None:
        self.state[lanes] = state
        self._since[lanes] = self._tick
