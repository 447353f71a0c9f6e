"""Progress on stderr, for people only: nothing is drawn when stderr is no terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from sipml_core.model import SILENT, Progress


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Yield the progress of all the work; on a terminal its labels and fractions are drawn."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield SILENT
        return
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as ProgressDisplay

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with ProgressDisplay(*columns, console=console, transient=True) as display:
        task = display.add_task("preparing", total=1.0)

        def report(what: str, fraction: float) -> None:
            display.update(task, description=what, completed=fraction)

        yield Progress(watch=report)
