"""``reproduce validation``: what others measured, predicted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sipml_core.cli.asking import console, say, wrote
from sipml_core.cli.keeping import computing, now_left

if TYPE_CHECKING:
    from sipml_core.executing import Executor
    from sipml_core.plugin import Registry
    from sipml_core.store import ResultStore


def validation(
    registry: Registry, executor: Executor, store: ResultStore, folder: Path, picture: bool, quick: bool
) -> None:
    """Predict every measured row, write the files and show errors by source; quick: every tenth row.

    Memory is held against what was published besides, but not where it is to be quick.
    """
    from sipml_core.report import (
        memory_line,
        new_figure,
        validation_lines,
        validation_table,
        write_predictions,
    )
    from sipml_core.validating import footprints, measured_rows, predictions

    if picture:
        new_figure(1, 1)
    rows = measured_rows()
    with computing(folder, store.folder) as progress:
        with executor:
            found = predictions(rows[::10] if quick else rows, executor, store, progress)
        memory = [] if quick else footprints(registry)
        files = write_predictions(found, memory, folder, picture)
        now_left(f"; results are in {folder}")
    wrote(files)
    console().print(validation_table(found))
    if memory:
        say(memory_line(memory))
    for line in validation_lines(found):
        say(line)
    say(
        "constants were chosen with all rows in sight, also those that nothing was fitted to; "
        "docs/validation.md has the errors of each source with constants refitted to all others"
    )
