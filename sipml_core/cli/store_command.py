"""``store``: the results that runs, searches and sweeps keep."""

from __future__ import annotations

from pathlib import Path

import click

from sipml_core.cli.asking import size_of


@click.command()
@click.option(
    "--store",
    "--cache",
    "folder",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="The folder; default the user's own.",
)
@click.option(
    "--unused",
    "unused_days",
    type=click.FloatRange(min=0),
    metavar="DAYS",
    help="Remove results that were not used for so long.",
)
@click.option(
    "--down-to",
    metavar="SIZE",
    help="Remove what was used least lately, until the store is no larger: 100 MB.",
)
@click.option("--clear", is_flag=True, help="Remove all results: the next command computes them again.")
def store(folder: Path | None, unused_days: float | None, down_to: str | None, clear: bool) -> None:
    """Say what the store of results holds, and remove what is not needed.

    Every run, search, study and sweep looks here first, and keeps here what it found. It is trimmed by
    itself beyond 500 MB: the results that were used least lately go first.

    \b
    Examples:
      python -m sipml_core store
      python -m sipml_core store --unused 30 --down-to "100 MB"
    """
    from sipml_core.fields import format_bytes
    from sipml_core.store import ResultStore, default_store_folder, prune, store_contents

    results = ResultStore(folder or default_store_folder())
    most_bytes = 0.0 if clear else None if down_to is None else size_of(down_to, "--down-to")
    if unused_days is not None or most_bytes is not None:
        count, size_bytes = prune(results, unused_days=unused_days, down_to_bytes=most_bytes)
        click.echo(f"{results.folder}: removed {count} files, {format_bytes(size_bytes)}")
    found = store_contents(results)
    kinds = ", ".join(f"{count} {kind}s" for kind, count in sorted(found.kinds.items()))
    click.echo(
        f"{results.folder}: {found.records} results, {format_bytes(found.size_bytes)}"
        + (f": {kinds}; {found.failed} of them say why there is none" if kinds else "")
    )
    if found.unreadable:
        click.echo(f"{found.unreadable} files are of an older format, or damaged: they count as none")
