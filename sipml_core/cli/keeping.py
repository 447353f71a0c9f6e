"""What an interrupt or a failing output would leave behind at this moment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from sipml_core.model import Progress

_LEFT = "sipml.left"


def left_behind() -> str:
    """Return the end of a sentence that says what there is on disk, empty where nothing was begun."""
    context = click.get_current_context(silent=True)
    return str(context.meta.get(_LEFT, "")) if context else ""


def now_left(text: str) -> None:
    """From now on `left_behind` says so."""
    click.get_current_context().meta[_LEFT] = text


@contextmanager
def computing(folder: Path, kept_in: Path | None = None) -> Iterator[Progress]:
    """Make `folder`, and know that nothing is written to it until the block says `now_left`.

    Where the block fails and left nothing, there is no empty folder either.

    Yields the report of a progress bar on stderr, which is silent when stderr is no terminal.
    """
    from sipml_core.report import prepare_folder, progress_bar

    left = f"; nothing was written to {folder}"
    if kept_in:
        left += f"; any results so far are kept in {kept_in}: the same command goes on from them"
    now_left(left)
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    prepare_folder(folder)
    try:
        with progress_bar() as progress:
            yield progress
    except BaseException:
        for path in made:
            with suppress(OSError):  # not empty: what is there stays
                path.rmdir()
        raise
