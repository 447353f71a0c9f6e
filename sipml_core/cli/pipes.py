"""A reader that leaves before all is written, as `head` does: the command ends, quietly."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from contextlib import contextmanager

#: Exit status: 128 + SIGPIPE, as shells have it.
READER_LEFT = 141
_OUTPUTS = (1, 2)


@contextmanager
def readers_that_leave() -> Iterator[None]:
    """End with `READER_LEFT` where a block writes to a standard stream that nobody reads any more.

    A pipe to somebody else that breaks stays the error that it is.
    """
    try:
        yield
    except BrokenPipeError:
        if not (left := [stream for stream in _OUTPUTS if _left(stream)]):
            raise
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in left:  # what is written when Python ends would be an error again
            os.dup2(nowhere, stream)
        raise SystemExit(READER_LEFT) from None


def _left(stream: int) -> bool:
    """Return whether a stream is a pipe that has no reader."""
    poll = select.poll()
    poll.register(stream, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))
