"""``run`` and ``validate``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sipml_core.cli.asking import (
    case_lines,
    changes,
    console,
    experiment_options,
    opened,
    plugins_with_warnings,
    say,
    store_in,
    store_options,
    warn,
    wrote,
)
from sipml_core.cli.detail_options import details_options, details_request, write_what_happened
from sipml_core.cli.keeping import computing, now_left

if TYPE_CHECKING:
    from sipml_core.cases import ExperimentRun
    from sipml_core.experiment import Experiment
    from sipml_core.model import Progress, Result
    from sipml_core.store import EarlierRuns, ResultStore


def _a_number(_: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    """Refuse what compares with nothing."""
    if value is not None and math.isnan(value):
        raise click.BadParameter("nan is no number of seconds", param=parameter)
    return value


@click.command()
@experiment_options
@click.option("--out", type=click.Path(path_type=Path), help="Results folder; default results/<title>.")
@click.option(
    "--max-wall",
    type=click.FloatRange(min=0, min_open=True),
    callback=_a_number,
    metavar="SECONDS",
    help="Stop after so long; what ran until then is kept.",
)
@click.option(
    "--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Processes. Same result."
)
@store_options
@details_options
def run(
    file: Path,
    overrides: tuple[str, ...],
    seed: int | None,
    out: Path | None,
    max_wall: float | None,
    jobs: int,
    store: Path | None,
    no_store: bool,
    **asked: Any,
) -> None:
    """Simulate every workload of FILE on every interconnect and compare them.

    Prints a table for each workload and writes result.json, summary.csv and experiment.toml (the
    exact configuration, which repeats the run) to the results folder. What cannot run, or did not end,
    is a row with its reason. What the store has of an earlier run is not simulated again, but for details.

    \b
    What happened, and when:
      python -m sipml_core run quickstart.toml --details --trace quickstart.pftrace --gpus 0-7
    """
    from sipml_core.cases import ExperimentRun
    from sipml_core.report import write_result

    registry, experiment = opened(file, overrides, seed)
    folder = out or Path("results") / experiment.title
    kept = store_in(store, no_store)
    told = case_lines()
    request = details_request(experiment, folder, asked)
    earlier = _earlier_runs(kept, experiment, recorded=request.wanted)
    with computing(folder) as progress:
        warn(registry.tell("sipml_run_started", experiment=experiment))
        running = ExperimentRun(
            experiment, max_wall_s=max_wall, progress=progress, earlier=earlier, ended=told,
            details=request.wanted, timelines=bool(registry.observers("sipml_run_finished")),
        )  # fmt: skip
        try:
            if jobs == 1 or request.wanted:
                running.go()
            else:
                running.settled_by(lambda: _in_processes(running, jobs, kept, progress))
        except BaseException:
            if running.anything:
                write_result(running.result(), folder)
                goes_on = ": the same command goes on from it" if kept.folder else ""
                now_left(f"; what ran until then is in {folder}{goes_on}")
            raise
        result = running.result()
        files = write_result(result, folder)
        now_left(f"; results are in {folder}")
        files += write_what_happened(result, request)
    wrote(files)
    warn(registry.tell("sipml_run_finished", result=result))
    _show(result)
    if not result.complete:
        unrun = sum(not case.ran for case in result.cases)
        click.echo(f"sipml: {unrun} of {len(result.cases)} cases did not run; each row says why", err=True)
        raise SystemExit(1)


def _earlier_runs(store: ResultStore, experiment: Experiment, *, recorded: bool) -> EarlierRuns | None:
    """Return what the store has of an experiment; it has rows, and no recordings."""
    if store.folder is None:
        return None
    from sipml_core.store import EarlierRuns

    return EarlierRuns(store, experiment, details=("recording",) if recorded else ())


def _in_processes(running: ExperimentRun, jobs: int, store: ResultStore, progress: Progress) -> None:
    from sipml_core.executing import executor_for
    from sipml_core.searching import CaseRuns

    told = case_lines()
    with executor_for(jobs=jobs) as executor:
        CaseRuns(
            [running.experiment], [running.comparisons], executor, store, progress=progress, refuse=True,
            ended=lambda number, comparison, row: told(comparison.name, row),
        ).go(retry_failed=True)  # fmt: skip


def _show(result: Result) -> None:
    from sipml_core.report import footnotes, result_tables

    shown = console()
    for table in result_tables(result, shown.width):
        shown.print(table)
    for line in footnotes(result):
        say(line)


@click.command()
@experiment_options
def validate(file: Path, overrides: tuple[str, ...], seed: int | None) -> None:
    """Check FILE without simulating: what it accepts, `run` will run (within its time limits).

    Every workload is cut and placed, memory is checked, every route is looked up and, on one-shot
    circuit networks, the circuits are planned. The exit status is that of `run`: 1 if a case cannot run.
    Of a file for `share` the tables are checked.
    """
    from sipml_core.cases import check_experiment
    from sipml_core.experiment import SHARED_KEYS, read_tables

    if any(key in read_tables(file) for key in SHARED_KEYS):
        _validate_shared(file, overrides, seed)
        return
    _, experiment = opened(file, overrides, seed)
    fits = True
    for check in check_experiment(experiment):
        click.echo(check.line)
        fits &= check.fits
    if not fits:
        raise SystemExit(1)
    click.echo(f"{file} is valid")


def _validate_shared(file: Path, overrides: tuple[str, ...], seed: int | None) -> None:
    """Check the jobs of a file, each on GPUs of its own."""
    from sipml_core.sharing import open_shared

    shared = open_shared(file, plugins_with_warnings(), change=changes(overrides, seed))
    click.echo(
        f"{len(shared.jobs)} jobs of {len(shared.kinds)} kinds on {len(shared.interconnects)} networks"
    )
    click.echo(f"{file} is valid")
