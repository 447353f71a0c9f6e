"""``reproduce fragmentation``: what scattered GPUs cost on a shared cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sipml_core.cli.asking import console, say, wrote
from sipml_core.cli.keeping import computing, now_left

if TYPE_CHECKING:
    from sipml_core.executing import Executor
    from sipml_core.plugin import Registry
    from sipml_core.store import ResultStore


def fragmentation(
    registry: Registry, executor: Executor, store: ResultStore, folder: Path, picture: bool, quick: bool
) -> None:
    """Run every setting of the study, write the files, and show the rows and the verdicts.

    Nothing of it is kept in `store`, and `registry` is loaded anew where `executor` works.
    """
    from sipml_core.report import fragmentation_tables, new_figure, write_fragmentation
    from sipml_core.sharing import carry_out_fragmentation, fragmentation_study, verdicts_on_sharing

    if picture:
        new_figure(1, 1)
    with computing(folder) as progress:
        with executor:
            rows = carry_out_fragmentation(executor, quick, progress)
        verdicts = verdicts_on_sharing(fragmentation_study().claim, rows)
        files = write_fragmentation(rows, verdicts, folder, picture)
        now_left(f"; results are in {folder}")
    wrote(files)
    screen = console()
    for table in fragmentation_tables(rows, verdicts, screen.width):
        screen.print(table)
    if quick:
        say("a quick look at fewer jobs: claims are about the study without --quick")
