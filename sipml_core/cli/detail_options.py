"""Options of commands that look into a run: what is wanted of it, and how much at most."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sipml_core.cli.asking import size_of

if TYPE_CHECKING:
    from sipml_core.details import Selection
    from sipml_core.experiment import Experiment
    from sipml_core.model import Result
    from sipml_core.report import DetailRequest


def selection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Which replicas, which GPUs, which time."""
    for decorate in (
        click.option("--window", metavar="FROM..TO", help="Of the run, such as '1 ms..2 ms'."),
        click.option("--gpus", metavar="NUMBERS", help="GPUs to look at, such as 0-7; default all."),
        click.option("--replicas", metavar="NUMBERS", help="Replicas to look at, such as 0,3; default all."),
    ):
        command = decorate(command)
    return command


def details_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What a run writes of what happened."""
    command = selection_options(command)
    for decorate in (
        click.option(
            "--details-limit", default="1 GB", show_default=True,
            help="Refuse to write more than this of details, or of trace.",
        ),
        click.option(
            "--trace", type=click.Path(path_type=Path), metavar="FILE",
            help="Write what happened for ui.perfetto.dev to FILE; with several cases one file each.",
        ),
        click.option(
            "--details", is_flag=True,
            help="Write details/CASE/ to the results folder: gpus, links, traffic, flows and circuits (CSV).",
        ),
    ):  # fmt: skip
        command = decorate(command)
    return command


def selection_of(replicas: str | None, gpus: str | None, window: str | None) -> Selection:
    """Return the selection that options ask for."""
    from sipml_core.details import Selection, parse_numbers, parse_window

    return Selection(
        replicas=parse_numbers(replicas, "replicas") if replicas else None,
        gpus=parse_numbers(gpus, "gpus") if gpus else None,
        window_us=parse_window(window) if window else None,
    )


def details_request(experiment: Experiment, folder: Path, asked: dict[str, Any]) -> DetailRequest:
    """Return what the options of a run ask for, checked before anything runs.

    Raises
    ------
    ConfigError
        A GPU is not in the cluster, a number or a time cannot be read, or parts are chosen of nothing.
    """
    from sipml_core.errors import ConfigError
    from sipml_core.report import DetailRequest

    selection = selection_of(asked["replicas"], asked["gpus"], asked["window"])
    request = DetailRequest(
        folder=folder / "details" if asked["details"] else None,
        trace=asked["trace"],
        selection=selection,
        limit_bytes=size_of(asked["details_limit"], "--details-limit"),
    )
    chosen = [name for name in ("replicas", "gpus", "window") if asked[name]]
    if chosen and not request.wanted:
        raise ConfigError(f"--{chosen[0]} chooses a part of --details or --trace; give one of them")
    for interconnect in experiment.interconnects:
        selection.check_numbers(interconnect.cluster.gpus)
    if request.trace is not None and not request.trace.absolute().parent.is_dir():
        raise ConfigError(f"--trace: there is no folder {request.trace.absolute().parent}")
    if request.trace is not None and request.trace.is_dir():
        raise ConfigError(f"--trace must be the name of a file, got the folder '{request.trace}'")
    return request


def write_what_happened(result: Result, request: DetailRequest) -> list[Path]:
    """Say how much details and traces take, then write them."""
    if not request.wanted:
        return []
    from sipml_core.report import details_size_line, recorded_cases, write_details

    cases = recorded_cases(result, request.selection)
    if not cases:
        return []
    click.echo(details_size_line(cases, request), err=True)
    return write_details(cases, request)
