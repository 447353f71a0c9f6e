"""``cache``: the answers that searches and studies keep."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option(
    "--cache", "folder", type=click.Path(path_type=Path), help="The folder; default the user's own."
)
@click.option("--clear", is_flag=True, help="Remove all answers: the next search computes them again.")
def cache(folder: Path | None, clear: bool) -> None:
    """Say where `search` and `reproduce` keep their answers, and how many there are.

    It is trimmed by itself: the answers that were used least lately go first.
    """
    from sipml_core.fields import format_bytes
    from sipml_core.searching import AnswerCache, default_cache_folder

    answers = AnswerCache(folder or default_cache_folder())
    count, size_bytes = answers.contents()
    if clear:
        answers.clear()
    click.echo(f"{answers.folder}: {count} answers, {format_bytes(size_bytes)}{', removed' if clear else ''}")
