"""Ctrl-C, wherever it comes: noticed even where it turns into another error."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupts_noticed() -> Iterator[list[int]]:
    """Yields a list that fills with the interrupts of this block.

    Each still raises `KeyboardInterrupt`, but the initialisation of an extension module, for one, turns
    that into an `ImportError` or a failed call. Where interrupts are ignored, as under nohup, they stay so.
    """
    seen: list[int] = []

    def notice(number: int, _: FrameType | None) -> None:
        seen.append(number)
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        yield seen
        return
    signal.signal(signal.SIGINT, notice)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)
