"""``run`` and ``validate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sipml_core.cli.asking import console, experiment_options, opened, say, warn, wrote
from sipml_core.cli.detail_options import details_options, details_request, write_what_happened
from sipml_core.cli.keeping import computing, now_left

if TYPE_CHECKING:
    from sipml_core.model import Result


@click.command()
@experiment_options
@click.option("--out", type=click.Path(path_type=Path), help="Results folder; default results/<title>.")
@click.option(
    "--max-wall",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Stop after so long; what ran until then is kept.",
)
@details_options
def run(
    file: Path,
    overrides: tuple[str, ...],
    seed: int | None,
    out: Path | None,
    max_wall: float | None,
    **asked: Any,
) -> None:
    """Simulate every workload of FILE on every interconnect and compare them.

    Prints a table for each workload and writes result.json, summary.csv and experiment.toml (the
    exact configuration, which repeats the run) to the results folder. What cannot run, or did not end,
    is a row with its reason.

    \b
    What happened, and when:
      python -m sipml_core run quickstart.toml --details --trace quickstart.pftrace --gpus 0-7
    """
    from sipml_core.cases import ExperimentRun
    from sipml_core.report import write_result

    registry, experiment = opened(file, overrides, seed)
    folder = out or Path("results") / experiment.title
    request = details_request(experiment, folder, asked)
    with computing(folder) as progress:
        warn(registry.tell("sipml_run_started", experiment=experiment))
        running = ExperimentRun(experiment, max_wall_s=max_wall, progress=progress, details=request.wanted)
        try:
            running.go()
        except BaseException:
            if running.anything:
                write_result(running.result(), folder)
                now_left(f"; what ran until then is in {folder}")
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
    """
    from sipml_core.cases import check_experiment

    _, experiment = opened(file, overrides, seed)
    fits = True
    for check in check_experiment(experiment):
        click.echo(check.line)
        fits &= check.fits
    if not fits:
        raise SystemExit(1)
    click.echo(f"{file} is valid")
