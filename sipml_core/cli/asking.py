"""What commands share: arguments that name and change an experiment, plugins with warnings, a console."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from sipml_core.executing import Executor
    from sipml_core.experiment import Experiment
    from sipml_core.model import CaseResult
    from sipml_core.plugin import Registry
    from sipml_core.store import ResultStore

#: Columns where there is no terminal and COLUMNS says nothing: wide enough for the tables.
NO_TERMINAL = 160


def experiment_options(command: Callable[..., Any]) -> Callable[..., Any]:
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


def store_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Where earlier results are looked up, and those of this command kept."""
    for decorate in (
        click.option(
            "--no-store", "--no-cache", "no_store", is_flag=True,
            help="Neither use nor keep earlier results.",
        ),
        click.option(
            "--store", "--cache", "store", type=click.Path(path_type=Path), metavar="FOLDER",
            help="Folder of earlier results; default sipml in the user's cache folder.",
        ),
    ):  # fmt: skip
        command = decorate(command)
    return command


def search_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """How a search is run, which changes nothing about its result."""
    on = click.option(
        "--on", metavar="PLACE",
        help="Who does the work: dask://HOST:PORT, or slurm[:partition=NAME,timeout_min=60,...] in --jobs "
        "jobs; default this machine.",
    )  # fmt: skip
    jobs = click.option(
        "--jobs", type=click.IntRange(min=1), help="Processes; default one for each CPU. Same result."
    )
    return jobs(on(store_options(command)))


def executor_on(on: str | None, jobs: int | None, registry: Registry, folder: Path) -> Executor:
    """Return who does the work of a command that writes to `folder`; `ConfigError` if it is not there."""
    import os

    from sipml_core.executing import executor_for
    from sipml_core.searching import probe_of

    return executor_for(on, jobs or os.cpu_count() or 1, probe=probe_of(registry), logs=folder / "jobs")


def opened(file: Path, overrides: tuple[str, ...], seed: int | None) -> tuple[Registry, Experiment]:
    """Return the plugins and the experiment of FILE, changed as the options say."""
    from sipml_core.experiment import open_experiment

    registry = plugins_with_warnings()
    return registry, open_experiment(file, registry, change=changes(overrides, seed))


def changes(
    overrides: tuple[str, ...], seed: int | None
) -> Callable[[dict[str, Any]], dict[str, Any]] | None:
    """Return what options change in the tables of an experiment; None: nothing."""
    from sipml_core.experiment import apply_overrides

    if not overrides and seed is None:
        return None

    def changed(tables: dict[str, Any]) -> dict[str, Any]:
        tables = apply_overrides(tables, overrides)
        return tables if seed is None else {**tables, "seed": seed}

    return changed


def plugins_with_warnings() -> Registry:
    """Return the loaded plugins; problems are warnings, the rest still works."""
    from sipml_core.plugin import load

    registry = load()
    warn(registry.problems)
    return registry


def warn(problems: list[str]) -> None:
    """One line on stderr for each problem that does not stop the command."""
    for problem in problems:
        click.echo(f"sipml: warning: {problem}", err=True)


def store_in(folder: Path | None, no_store: bool) -> ResultStore:
    """Return where results are kept, perhaps nowhere; `ConfigError` if `folder` cannot be written."""
    from sipml_core.store import ResultStore, usable_store

    if no_store:
        return ResultStore(None)
    store, problem = usable_store(folder)
    warn([problem] if problem else [])
    return store


def size_of(text: str, option: str) -> float:
    """Return the size that an option gives; `ConfigError` names the option. [bytes]"""
    from sipml_core.errors import ConfigError
    from sipml_core.fields import parse_bytes

    try:
        size_bytes = parse_bytes(text)
    except ConfigError as error:
        raise ConfigError(f"{option} {error}") from None
    if size_bytes < 0:
        raise ConfigError(f"{option} must be at least 0 B, got {text!r}")
    return size_bytes


def bandwidth_of(text: str, option: str = "--bandwidth") -> float:
    """Return the bandwidth that an option gives; `ConfigError` names the option. [Gbps]"""
    from sipml_core.errors import ConfigError
    from sipml_core.fields import parse_gbps

    try:
        found = parse_gbps(text)
    except ConfigError as error:
        raise ConfigError(f"{option} {error}") from None
    if found <= 0:
        raise ConfigError(f"{option} must be positive, got {text!r}")
    return found


def console() -> Any:
    """Return stdout: as wide as the terminal or COLUMNS say, else wide enough for the tables.

    What is printed is shown as it is: "[ms]" is a unit, and no markup.
    """
    import os

    from rich.console import Console

    class Terminal(Console):
        def on_broken_pipe(self) -> None:
            raise  # what is being handled, to `readers_that_leave`

    if os.environ.get("COLUMNS", "").isdigit():
        return Terminal(width=max(20, int(os.environ["COLUMNS"])), markup=False, emoji=False)
    terminal = Terminal(markup=False, emoji=False)
    return terminal if terminal.is_terminal else Terminal(width=NO_TERMINAL, markup=False, emoji=False)


def case_lines() -> Callable[[str, CaseResult], None]:
    """Return what tells of each case that has ended, in a line on stderr; a terminal has a bar instead."""
    import sys

    if sys.stderr.isatty():
        return lambda name, row: None

    def told(name: str, row: CaseResult) -> None:
        time = f"{row.iteration_us / 1e3:.4g} ms" if row.iteration_us is not None else row.reason
        click.echo(f"{name}: {row.status}, {time}", err=True)

    return told


def say(line: str) -> None:
    """A footnote on stdout, as it is: text from users is no markup."""
    console().print(line, style="dim", highlight=False, soft_wrap=True, markup=False, emoji=False)


def wrote(files: list[Path]) -> None:
    """Say on stderr what was written."""
    click.echo(f"wrote {', '.join(told(files))}", err=True)


#: Files that are named one by one, and of one folder where there are more.
_NAMED, _NAMED_OF_FOLDER = 8, 4


def told(files: list[Path]) -> list[str]:
    """Return the files, or how many there are where, if they are many.

    >>> told([Path("a/x.csv"), Path("b/y.csv")])
    ['a/x.csv', 'b/y.csv']
    >>> told([Path("a/result.json"), *(Path("a", "details", str(k), "gpus.csv") for k in range(9))])
    ['a/result.json', '9 files under a/details']
    """
    if len(files) <= _NAMED:
        return [str(path) for path in files]
    folders = Counter(path.parent for path in files)
    above = Counter(folder.parent for folder in folders)
    groups: dict[Path, list[Path]] = {}
    for path in files:
        many = above[path.parent.parent] > _NAMED_OF_FOLDER
        groups.setdefault(path.parent.parent if many else path.parent, []).append(path)
    found = []
    for folder, mine in groups.items():
        found += (
            [str(path) for path in mine]
            if len(mine) <= _NAMED_OF_FOLDER
            else [f"{len(mine)} files under {folder}"]
        )
    return found
