"""``compare``: two results, held against each other."""

from __future__ import annotations

from pathlib import Path

import click

from sipml_core.cli.asking import console, say


@click.command()
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
def compare(first: Path, second: Path) -> None:
    """Say what differs between two results: in what was asked, then in what came out.

    FIRST and SECOND are folders of results, or files in them: result.json, search.json, or a CSV file of a
    sweep, a study, a search or a run. Of each column: in how many rows it differs, and where it moved most.

    \b
    Example:
      python -m sipml_core compare results/before results/after
    """
    from sipml_core.report import compared, comparison_lines, comparison_tables, result_pairs

    shown = console()
    for ours, theirs in result_pairs(first, second):
        comparison = compared(ours, theirs)
        for table in comparison_tables(comparison):
            shown.print(table)
        for line in comparison_lines(comparison):
            say(line)
