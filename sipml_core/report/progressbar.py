"""Progress on stderr, for people only: nothing is drawn when stderr is no terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from sipml_core.model import SILENT, Progress


def time_left(elapsed_s: float, fraction: float) -> str:
    """Return how long the rest takes if it goes on as it has, in words; nothing while that is a guess.

    >>> time_left(30.0, 0.25), time_left(3600.0, 0.5), time_left(0.1, 0.5)
    ('1:30 left', '1:00:00 left', '')
    """
    if elapsed_s < 1 or not 0.01 < fraction < 1:
        return ""
    minutes, seconds = divmod(round(elapsed_s * (1 - fraction) / fraction), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d} left" if hours else f"{minutes}:{seconds:02d} left"


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Yield the progress of all the work; on a terminal its labels and fractions are drawn."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield SILENT
        return
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as ProgressDisplay

    columns = (
        TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn(),
        TextColumn("{task.fields[left]}", markup=False),
    )  # fmt: skip
    with ProgressDisplay(*columns, console=console, transient=True) as display:
        task = display.add_task("preparing", total=1.0, left="")
        begun = time.monotonic()

        def report(what: str, fraction: float) -> None:
            left = time_left(time.monotonic() - begun, fraction)
            display.update(task, description=what, completed=fraction, left=left)

        yield Progress(watch=report)
