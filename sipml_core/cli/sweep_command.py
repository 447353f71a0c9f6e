"""``sweep``: one experiment at many points."""

from __future__ import annotations

from pathlib import Path

import click

from sipml_core.cli.asking import (
    case_lines,
    console,
    executor_on,
    plugins_with_warnings,
    say,
    search_options,
    store_in,
    wrote,
)
from sipml_core.cli.keeping import computing, now_left


@click.command()
@click.option("--out", type=click.Path(path_type=Path), help="Results folder; default results/FILE.")
@click.option(
    "--picture/--no-picture",
    default=None,
    help="Draw [figure], or without one the iteration along the first axis; default: [figure], if "
    "matplotlib is there.",
)
@click.option(
    "--width",
    type=click.FloatRange(1, 100),
    metavar="INCHES",
    help="Of the figure, instead of [figure] width_in; a column of a paper has 3.3.",
)
@click.option("--quick", is_flag=True, help="Only the values that FILE has for a first look.")
@click.option("--limit", type=click.IntRange(min=1), help="Runs at most; default 10000.")
@click.option("--retry-failed", is_flag=True, help="Try again what the store says cannot run, or failed.")
@click.option("--shard", metavar="K/N", help="Part K of N, for machines that share --store; 1/N to N/N.")
@search_options
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="SECTION.KEY=VALUE,VALUE,...",
    help="Values of an axis, further ones or in the place of those in FILE; may be given again.",
)
@click.argument("file", type=click.Path(path_type=Path))
def sweep(
    file: Path,
    overrides: tuple[str, ...],
    jobs: int | None,
    store: Path | None,
    no_store: bool,
    on: str | None,
    shard: str | None,
    retry_failed: bool,
    limit: int | None,
    quick: bool,
    width: float | None,
    picture: bool | None,
    out: Path | None,
) -> None:
    """Run FILE at every combination of the values of its axes: one CSV, a row for each run.

    FILE is a sweep, or an experiment whose axes --set gives. Results are kept in the store as they come:
    the same command goes on where another ended, and runs only what has changed. What cannot run is a row
    with its reason.

    \b
    Examples:
      python -m sipml_core sweep examples/sweep.toml
      python -m sipml_core sweep quickstart.toml --set cluster.bandwidth_gbps='400 Gbps','800 Gbps'
    """
    from sipml_core.executing import Shard
    from sipml_core.report import (
        can_draw,
        new_figure,
        prepare_folder,
        sweep_footnotes,
        sweep_tables,
        write_sweep,
    )
    from sipml_core.searching import Unfinished
    from sipml_core.sweeping import (
        DEFAULT_LIMIT,
        carry_out_sweep,
        file_name,
        read_sweep,
        with_alternatives,
        with_figure,
    )

    asked = with_alternatives(read_sweep(file), overrides)
    if picture:
        new_figure(1, 1)  # refused here where there is no matplotlib
    if width is not None or picture:
        asked = with_figure(asked, width)
    part = Shard.read(shard) if shard else None
    name = file_name(asked, file)
    folder = out or Path("results") / name
    registry = plugins_with_warnings()
    kept = store_in(store, no_store)
    prepare_folder(folder)
    executor = executor_on(on, jobs, registry, folder)
    with computing(folder, kept.folder) as progress:
        found = carry_out_sweep(
            asked, registry, executor, kept, quick=quick, limit=limit or DEFAULT_LIMIT, shard=part,
            retry_failed=retry_failed, progress=progress, ended=case_lines(),
        )  # fmt: skip
        if isinstance(found, Unfinished):
            click.echo(
                f"shard {shard} is done: {found.known} of {found.of} runs are in {kept.folder}; "
                f"the table is written by the shard that finds all of them, or without --shard"
            )
            return
        files = write_sweep(found, name, folder, can_draw() if picture is None else picture)
        now_left(f"; results are in {folder}")
    wrote(files)
    shown = console()
    for table in sweep_tables(found, name, shown.width):
        shown.print(table)
    for line in sweep_footnotes(found, name):
        say(line)
    if not found.complete:
        unrun = sum(not row.ran for row in found.rows)
        click.echo(f"sipml: {unrun} of {len(found.rows)} runs did not run; each row says why", err=True)
        raise SystemExit(1)
