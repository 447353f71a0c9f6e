"""The command line. Only here are errors caught broadly, and only here is anything printed.

Imports of the other rooms stand inside the commands, so that ``--help`` answers at once.
"""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sipml_core import __version__
from sipml_core.cli.interrupts import interrupts_noticed
from sipml_core.errors import ConfigError, InfeasibleError, PluginError, SipmlError

if TYPE_CHECKING:
    from sipml_core.experiment import Experiment
    from sipml_core.model import Progress
    from sipml_core.plugin import Registry

#: Exit status: the input is refused / a simulation could not end / 128 + SIGINT, as shells have it.
REFUSED, FAILED, INTERRUPTED = 2, 1, 130
#: Key in the context of a command: what an interrupt would leave behind now.
LEFT = "sipml.left"


def answers(command: Callable[..., None]) -> Callable[..., None]:
    """Errors that sipml raises on purpose, and interrupts, become one line on stderr, without a traceback."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        with interrupts_noticed() as interrupts:
            try:
                command(*args, **kwargs)
            except BaseException as error:
                answer = _answer(KeyboardInterrupt() if interrupts else error)
                if answer is None:
                    raise
                line, status = answer
                click.echo(f"sipml: {line}", err=True)
                raise SystemExit(status) from None

    return wrapped


def _answer(error: BaseException) -> tuple[str, int] | None:
    """The line for an error, and the exit status; None: it is nobody's purpose."""
    if isinstance(error, KeyboardInterrupt):
        return f"interrupted{click.get_current_context().meta.get(LEFT, '')}", INTERRUPTED
    if isinstance(error, SipmlError):
        refused = isinstance(error, (ConfigError, InfeasibleError, PluginError))
        return str(error), REFUSED if refused else FAILED
    if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
        return f"input or output failed: {error}", FAILED
    return None


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="sipml")
def main() -> None:
    """What would this network do to the time my training job takes?

    An experiment is a TOML file: a cluster, workloads to train, and interconnects to compare.

    \b
    Start here:
      python -m sipml_core new-experiment                   write quickstart.toml, to be changed
      python -m sipml_core run quickstart.toml              simulate and compare
      python -m sipml_core plugins                          what can be named in a file
      python -m sipml_core plugins sip-ring                 its options, units and defaults
      python -m sipml_core validate quickstart.toml         check without running
      python -m sipml_core run quickstart.toml --set cluster.bandwidth_gbps='"4 Tbps"'
    """


def experiment_options(command: Callable[..., None]) -> Callable[..., None]:
    """FILE and the options that change it."""
    for decorate in (
        click.option(
            "--seed", type=click.IntRange(min=0, max=2**63 - 1), help="Replaces the seed in the file."
        ),
        click.option(
            "--set", "overrides", multiple=True, metavar="SECTION.KEY=VALUE",
            help="Change one value; may be given again. In a list of tables the next part selects by name: "
            "--set topology.sip-ring.reach_hops=8; without it all tables change.",
        ),
        click.argument("file", type=click.Path(path_type=Path)),
    ):  # fmt: skip
        command = decorate(command)
    return command


def _open(file: Path, overrides: tuple[str, ...], seed: int | None) -> tuple[Registry, Experiment]:
    from sipml_core.experiment import apply_overrides, read_experiment, read_tables

    registry = _registry()
    tables = apply_overrides(read_tables(file), overrides)
    if seed is not None:
        tables["seed"] = seed
    try:
        return registry, read_experiment(tables, registry)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None


def _registry() -> Registry:
    """Loaded plugins; problems are warnings, the rest still works."""
    from sipml_core.plugin import load

    registry = load()
    for problem in registry.problems:
        click.echo(f"sipml: warning: {problem}", err=True)
    return registry


@main.command()
@experiment_options
@click.option("--out", type=click.Path(path_type=Path), help="Results folder; default results/<title>.")
@click.option(
    "--max-wall",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Give up after so long. Looked at while a case is simulated, not while it is prepared.",
)
@answers
def run(
    file: Path, overrides: tuple[str, ...], seed: int | None, out: Path | None, max_wall: float | None
) -> None:
    """Simulate every workload of FILE on every interconnect and compare them.

    Prints a table for each workload and writes result.json, summary.csv and experiment.toml (the
    exact configuration, which repeats the run) to the results folder.
    """
    from rich.console import Console

    from sipml_core.cases import run_experiment
    from sipml_core.report import footnotes, result_tables, write_result

    registry, experiment = _open(file, overrides, seed)
    folder = out or Path("results") / experiment.title
    with _computing(folder) as progress:
        registry.manager.hook.sipml_run_started(experiment=experiment)
        result = run_experiment(experiment, max_wall_s=max_wall, progress=progress)
    registry.manager.hook.sipml_run_finished(result=result)
    files = write_result(result, folder)
    console = _console()
    for table in result_tables(result, console.width):
        console.print(table)
    for line in footnotes(result):
        console.print(line, style="dim", highlight=False)
    Console(stderr=True).print(
        f"wrote {', '.join(str(path) for path in files)}", highlight=False, soft_wrap=True
    )


@main.command()
@experiment_options
@answers
def validate(file: Path, overrides: tuple[str, ...], seed: int | None) -> None:
    """Check FILE without simulating: what it accepts, `run` will run (within its time limits).

    Every workload is cut and placed, memory is checked, every route is looked up and, on one-shot
    circuit networks, the circuits are planned.
    """
    from sipml_core.cases import check_experiment

    _, experiment = _open(file, overrides, seed)
    for line in check_experiment(experiment):
        click.echo(line)
    click.echo(f"{file} is valid")


def search_options(command: Callable[..., None]) -> Callable[..., None]:
    """How a search is run, which changes nothing about its result."""
    for decorate in (
        click.option("--no-cache", is_flag=True, help="Neither use nor keep earlier answers."),
        click.option(
            "--cache", type=click.Path(path_type=Path),
            help="Folder of earlier answers; default sipml in the user's cache folder.",
        ),
        click.option(
            "--jobs", type=click.IntRange(min=1), help="Processes; default one for each CPU. Same result."
        ),
    ):  # fmt: skip
        command = decorate(command)
    return command


def _cache_folder(cache: Path | None, no_cache: bool) -> Path | None:
    from sipml_core.search import default_cache_folder

    return None if no_cache else cache or default_cache_folder()


@main.command("search")
@experiment_options
@search_options
@click.option("--top", type=click.IntRange(min=1), help="Strategies simulated in full, per case.")
@click.option("--all", "everything", is_flag=True, help="Show every candidate, not only the best.")
@click.option("--explain", is_flag=True, help="Also say how the winners cut every op, and why.")
@click.option("--out", type=click.Path(path_type=Path), help="Results folder; default results/<title>.")
@answers
def search_command(
    file: Path,
    overrides: tuple[str, ...],
    seed: int | None,
    jobs: int | None,
    cache: Path | None,
    no_cache: bool,
    top: int | None,
    everything: bool,
    explain: bool,
    out: Path | None,
) -> None:
    """Find the strategy with the least time-to-accuracy for every workload on every interconnect.

    Global batches x (mp, dp) x layouts x placers are estimated, the best few simulated in full. The
    [search] table of FILE says what is tried. Writes search.csv and search.json to the results folder.

    \b
    Example:
      python -m sipml_core search quickstart.toml
    """
    from sipml_core.report import search_footnotes, search_tables, winner_tables, winners_table, write_search
    from sipml_core.search import AnswerCache, search

    if top is not None:
        overrides = (*overrides, f"search.top={top}")
    _, experiment = _open(file, overrides, seed)
    folder = out or Path("results") / experiment.title
    answers_in = _cache_folder(cache, no_cache)
    with _computing(folder, answers_in) as progress:
        (result,) = search(
            [experiment], jobs=jobs or os.cpu_count() or 1, cache=AnswerCache(answers_in), progress=progress
        )
    console = _console()
    for table in search_tables(result, shown=None) if everything else search_tables(result):
        console.print(table)
    console.print(winners_table(result))
    if explain:
        for table in winner_tables(experiment, result):
            console.print(table)
    for line in search_footnotes(result):
        console.print(line, style="dim", highlight=False, soft_wrap=True)
    for path in write_search(result, folder):
        click.echo(f"wrote {path}", err=True)


@main.command()
@experiment_options
@answers
def explain(file: Path, overrides: tuple[str, ...], seed: int | None) -> None:
    """Say how each op of FILE's workloads is cut under [strategy], why, and what came second."""
    from sipml_core.report import strategy_tables

    _, experiment = _open(file, overrides, seed)
    console = _console()
    for table in strategy_tables(experiment):
        console.print(table)


@main.command()
@click.argument("studies", nargs=-1)
@click.option("--quick", is_flag=True, help="64 GPUs and fewer points: a look, not the paper's scale.")
@search_options
@click.option(
    "--out", type=click.Path(path_type=Path), help="Default results/reproduce, or results/reproduce-quick."
)
@click.option("--picture/--no-picture", default=True, help="Draw the figures (needs matplotlib).")
@answers
def reproduce(
    studies: tuple[str, ...],
    quick: bool,
    jobs: int | None,
    cache: Path | None,
    no_cache: bool,
    out: Path | None,
    picture: bool,
) -> None:
    """Repeat the paper's evaluation: fig1 fig5 fig6 degree latency scale claims, or all (the
    default, with ablations: what our assumptions change).

    Writes a figure (PNG and SVG) and the numbers (CSV) of each study, and holds the paper's claims
    against them.

    \b
    Example:
      python -m sipml_core reproduce claims fig5 --quick
    """
    from sipml_core.report import finding_tables, new_figure, reproduction_footnotes, write_finding
    from sipml_core.reproduce import carry_out, study_names
    from sipml_core.search import AnswerCache

    names = study_names() if not studies or "all" in studies else list(dict.fromkeys(studies))
    folder = out or Path("results") / ("reproduce-quick" if quick else "reproduce")
    if picture:
        new_figure(1, 1)
    answers_in = _cache_folder(cache, no_cache)
    with _computing(folder, answers_in) as progress:
        findings = carry_out(
            names, _registry(), quick=quick, jobs=jobs or os.cpu_count() or 1,
            cache=AnswerCache(answers_in), progress=progress,
        )  # fmt: skip
    console = _console()
    for finding in findings:
        for table in finding_tables(finding):
            console.print(table)
        for path in write_finding(finding, folder, picture):
            click.echo(f"wrote {path}", err=True)
    for line in reproduction_footnotes(findings):
        console.print(line, style="dim", highlight=False, soft_wrap=True)


@main.command()
@click.argument("name", required=False)
@click.option("--trace", is_flag=True, help="Show instead which plugins are loaded and called, in order.")
@answers
def plugins(name: str | None, trace: bool) -> None:
    """List what is installed, or show the options of NAME with units and defaults.

    SIPML_DISABLE_PLUGINS=NAME,NAME in the environment leaves plugins out.
    """
    from sipml_core.report import offer_page, offers_table, trace_lines

    registry = _registry()
    if trace:
        for line in trace_lines(registry):
            click.echo(line)
        return
    _console().print(offers_table(registry) if name is None else offer_page(registry, name))


@main.command("new-experiment")
@click.argument("file", type=click.Path(path_type=Path), default=Path("quickstart.toml"))
@answers
def new_experiment(file: Path) -> None:
    """Write an experiment to start from to FILE, by default quickstart.toml: it runs as it is."""
    from sipml_core.templates import write_experiment

    write_experiment(file)
    click.echo(f"wrote {file}")
    click.echo(f"next: python -m sipml_core run {shlex.quote(str(file))}")


@main.command("new-plugin")
@click.argument("name")
@click.option("--folder", type=click.Path(path_type=Path), help="Where to write it; default sipml-NAME.")
@answers
def new_plugin(name: str, folder: Path | None) -> None:
    """Write a package with a topology NAME of your own to start from, and tests that it passes."""
    from sipml_core.templates import write_plugin

    folder = folder or Path(f"sipml-{name}")
    for path in write_plugin(name, folder, _registry()):
        click.echo(f"wrote {path}")
    click.echo(f"next: python -m pip install -e {folder} && python -m pytest {folder}")


@main.command()
@click.option("--topology", required=True, help="A circuit topology, see `plugins`.")
@click.option(
    "--matrix",
    required=True,
    type=click.Path(path_type=Path),
    help="N x N demands, row = sender: .csv or .npy.",
)
@click.option("--bandwidth", default="2 Tbps", show_default=True, help="Of one GPU, each direction.")
@click.option("--scheduler", help="Default: the topology's own.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="An option of the topology.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("results/circuits"), show_default=True)
@click.option("--picture/--no-picture", default=None, help="Draw plan.png; default: if matplotlib is there.")
@answers
def circuits(
    topology: str,
    matrix: Path,
    bandwidth: str,
    scheduler: str | None,
    overrides: tuple[str, ...],
    out: Path,
    picture: bool | None,
) -> None:
    """Plan circuits for one traffic matrix and show what they achieve.

    \b
    Example, three GPUs in a circle:
      printf '0,5,0\\n0,0,5\\n5,0,0\\n' > tm.csv
      python -m sipml_core circuits --topology sip-ring --matrix tm.csv
    """
    from sipml_core.cases import plan_circuits
    from sipml_core.report import (
        can_draw,
        plan_summary,
        plan_table,
        prepare_folder,
        summary_lines,
        write_plan,
    )
    from sipml_core.scheduling import read_matrix

    registry = _registry()
    traffic = read_matrix(matrix)
    plan, notes = plan_circuits(registry, topology, scheduler, traffic, bandwidth, overrides)
    prepare_folder(out)
    files = write_plan(plan, traffic, out, can_draw() if picture is None else picture)
    _console().print(plan_table(plan, traffic, f"{topology}: circuits for {matrix.name}"))
    for line in (*notes, *summary_lines(plan_summary(plan, traffic))):
        click.echo(line)
    if picture is None and not can_draw():
        click.echo("no picture without matplotlib: python -m pip install matplotlib", err=True)
    click.echo(f"wrote {', '.join(str(path) for path in files)}", err=True)


def _console() -> Any:
    """stdout: as wide as the terminal, and wide enough for the tables where there is none."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=140)


@contextmanager
def _computing(folder: Path, answers_in: Path | None = None) -> Iterator[Progress]:
    """From making `folder` until something is written to it: what an interrupt leaves is known.

    Yields the report of a progress bar on stderr, which is silent when stderr is no terminal.
    """
    from sipml_core.report import prepare_folder, progress_bar

    left = f"; nothing was written to {folder}"
    if answers_in:
        left += f"; any answers so far are kept in {answers_in}: the same command goes on from them"
    meta = click.get_current_context().meta
    meta[LEFT] = left
    prepare_folder(folder)
    with progress_bar() as progress:
        yield progress
    del meta[LEFT]
