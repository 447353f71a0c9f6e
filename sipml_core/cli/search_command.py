"""``search`` and ``explain``: the plans with the least time, and why ops are cut as they are."""

from __future__ import annotations

from pathlib import Path

import click

from sipml_core.cli.asking import (
    changes,
    console,
    executor_on,
    experiment_options,
    opened,
    plugins_with_warnings,
    say,
    search_options,
    store_in,
    wrote,
)
from sipml_core.cli.keeping import computing, now_left


@click.command()
@experiment_options
@search_options
@click.option("--top", type=click.IntRange(min=1), help="Strategies simulated in full, per case.")
@click.option("--all", "everything", is_flag=True, help="Show every candidate, not only the best.")
@click.option("--explain", "details", is_flag=True, help="Also say how the winners cut every op, and why.")
@click.option("--out", type=click.Path(path_type=Path), help="Results folder; default results/<title>.")
def search(
    file: Path,
    overrides: tuple[str, ...],
    seed: int | None,
    jobs: int | None,
    on: str | None,
    store: Path | None,
    no_store: bool,
    top: int | None,
    everything: bool,
    details: bool,
    out: Path | None,
) -> None:
    """Find the strategy with the least time-to-accuracy for every workload on every interconnect.

    Global batches x (mp, dp) x layouts x placers are estimated, the best few simulated in full. The
    [search] table of FILE says what is tried. Writes search.csv and search.json to the results folder.

    \b
    Example:
      python -m sipml_core search quickstart.toml
    """
    from sipml_core.report import (
        SHOWN,
        search_footnotes,
        search_tables,
        winner_tables,
        winners_tables,
        write_search,
    )
    from sipml_core.searching import search as search_experiments

    if top is not None:
        overrides = (*overrides, f"workload.search.top={top}")
    registry, experiment = opened(file, overrides, seed)
    folder = out or Path("results") / experiment.title
    kept = store_in(store, no_store)
    executor = executor_on(on, jobs, registry, folder)
    with computing(folder, kept.folder) as progress:
        with executor:
            (result,) = search_experiments([experiment], executor=executor, store=kept, progress=progress)
        files = write_search(result, folder)
        now_left(f"; results are in {folder}")
    wrote(files)
    shown = console()
    for table in search_tables(result, shown.width, shown=None if everything else SHOWN):
        shown.print(table)
    for table in winners_tables(result, shown.width):
        shown.print(table)
    if details:
        for table in winner_tables(experiment, result, shown.width):
            shown.print(table)
    for line in search_footnotes(result):
        say(line)
    if not result.complete:
        click.echo("sipml: for some cases no candidate can run; the notes say why", err=True)
        raise SystemExit(1)


@click.command()
@experiment_options
@click.option("--time", "of_time", is_flag=True, help="Say why runs of FILE take as long as they do.")
@click.option("--workload", help="Of a result: this workload only.")
@click.option("--topology", help="Of a result: this interconnect only.")
@click.option(
    "--steps", type=click.IntRange(min=0), default=0, help="Of a result: show its longest steps too."
)
def explain(
    file: Path,
    overrides: tuple[str, ...],
    seed: int | None,
    of_time: bool,
    workload: str | None,
    topology: str | None,
    steps: int,
) -> None:
    """Say what FILE's workloads are made of, what stages hold, on which GPUs they are and whom these talk to,
    which passes they make, how ops are cut under [plan], why, and what came second.

    Of the folder of a result, or with --time: what its time was made of. The critical path goes back from the
    end of the run to its start over what each task and transfer waited for last; what would shorten it is
    simulated, one change at a time.

    \b
    Example:
      python -m sipml_core explain results/quickstart --topology sip-ring --steps 5
    """
    if of_time or file.is_dir() or file.name == "result.json":
        _explain_time(file, overrides, seed, (workload, topology), steps)
        return
    from sipml_core.errors import ConfigError
    from sipml_core.report import counts_tables, strategy_tables

    for option, given in (("--workload", workload), ("--topology", topology), ("--steps", steps)):
        if given:
            raise ConfigError(f"{option} is of a result: name its folder, or add --time")
    _, experiment = opened(file, overrides, seed)
    shown = console()
    for table in (*counts_tables(experiment, shown.width), *strategy_tables(experiment, shown.width)):
        shown.print(table)


def _explain_time(
    source: Path,
    overrides: tuple[str, ...],
    seed: int | None,
    names: tuple[str | None, str | None],
    steps: int,
) -> None:
    """Print the critical path of each case, and the gains of what would shorten it."""
    from sipml_core.cases import case_of, gains
    from sipml_core.report import Why, chosen_cases, experiment_of, progress_bar, repeated, row_of, why_tables

    registry, change = plugins_with_warnings(), changes(overrides, seed)
    experiment = experiment_of(source, registry, change)
    shown = console()
    with progress_bar() as progress:
        result = repeated(source, registry, progress, change)
        found = []
        for details in chosen_cases(result, *names):
            why = Why.of(details, row_of(result, details))
            case = case_of(experiment, why.row)
            found.append((why, gains(case, why.row, why.held_links(), progress)))
    for why, saved in found:
        shown.print(why.sentence(), highlight=False, markup=False, soft_wrap=True)
        for table in why_tables(why, saved, shown.width, steps):
            shown.print(table)
