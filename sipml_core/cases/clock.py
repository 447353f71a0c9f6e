"""The wall-clock limit of a whole run, preparation included."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import attrs

from sipml_core.errors import LimitError

#: An alarm that is set for longer is refused by the system: 30 years. [s]
LONGEST_S = 1e9


@attrs.define
class Clock:
    """Wall-clock limit of a whole run."""

    limit_s: float | None = None
    started: float = attrs.Factory(time.monotonic)

    def left_s(self) -> float | None:
        """Return the time that is left, None without a limit; `LimitError` if there is none left. [s]"""
        if self.limit_s is None:
            return None
        left = self.limit_s - (time.monotonic() - self.started)
        if left <= 0:
            raise self.reached()
        return left

    def reached(self) -> LimitError:
        """Return the error that the limit was reached."""
        return LimitError(f"the wall-clock limit of {self.limit_s:g} s was reached")

    @contextmanager
    def bounding(self) -> Iterator[None]:
        """Raise `LimitError` in the block when the time is over, whatever Python code runs there.

        Only the main thread can be woken so, and only where nobody else uses its alarm; elsewhere the limit
        is looked at when the block begins.
        """
        left = self.left_s()
        alone = threading.current_thread() is threading.main_thread()
        if left is None or not alone or signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL:
            yield
            return

        def over(_: int, __: FrameType | None) -> None:
            raise self.reached()

        signal.signal(signal.SIGALRM, over)
        # Again after a second, should somebody have caught the first.
        signal.setitimer(signal.ITIMER_REAL, min(left, LONGEST_S), 1.0)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
