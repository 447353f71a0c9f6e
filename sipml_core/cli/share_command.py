"""``share``: many jobs on one cluster."""

from __future__ import annotations

from pathlib import Path

import click

from sipml_core.cli.asking import changes, console, experiment_options, plugins_with_warnings, wrote
from sipml_core.cli.keeping import computing, now_left


@click.command()
@experiment_options
@click.option("--out", type=click.Path(path_type=Path), help="Results folder; default results/<title>.")
def share(file: Path, overrides: tuple[str, ...], seed: int | None, out: Path | None) -> None:
    """Let the jobs of FILE arrive on one cluster, wait, get GPUs, run side by side, and end.

    FILE has [[job]] tables, or [arrivals], beside workloads and topologies; each topology is a cluster of its
    own. Prints a summary of each network and writes jobs.csv and networks.csv to the results folder.
    """
    from sipml_core.report import shared_table, write_shared
    from sipml_core.sharing import open_shared, run_shared

    registry = plugins_with_warnings()
    experiment = open_shared(file, registry, change=changes(overrides, seed))
    folder = out or Path("results") / experiment.title
    with computing(folder) as progress:
        result = run_shared(experiment, progress)
        files = write_shared(result, folder)
        now_left(f"; results are in {folder}")
    wrote(files)
    screen = console()
    screen.print(shared_table(result, screen.width))
    failed = [row for row in result.rows if row.start_us is None]
    for row in failed:
        click.echo(f"{row.job} on {row.topology}: {row.status}: {row.reason}", err=True)
    if failed:
        raise SystemExit(1)
