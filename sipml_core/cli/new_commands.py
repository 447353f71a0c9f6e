"""``new-experiment`` and ``new-plugin``: something to start from."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from sipml_core.cli.asking import plugins_with_warnings


@click.command("new-experiment")
@click.argument("file", type=click.Path(path_type=Path), default=Path("quickstart.toml"))
def new_experiment(file: Path) -> None:
    """Write an experiment to start from to FILE, by default quickstart.toml: it runs as it is."""
    from sipml_core.templates import write_experiment

    write_experiment(file)
    click.echo(f"wrote {file}")
    click.echo(f"next: python -m sipml_core run {shlex.quote(str(file))}")


@click.command("new-plugin")
@click.argument("name")
@click.option(
    "--kind",
    default="topology",
    show_default=True,
    help="What it brings: topology, circuits, scheduler, placer, gpu, workload, estimator, exchange, all-reduce "
    "or communication.",
)
@click.option("--folder", type=click.Path(path_type=Path), help="Where to write it; default sipml-NAME.")
def new_plugin(name: str, kind: str, folder: Path | None) -> None:
    """Write a package with a topology (or another kind) NAME to start from, and tests that it passes."""
    from sipml_core.templates import write_plugin

    folder = folder or Path(f"sipml-{name}")
    for path in write_plugin(name, folder, plugins_with_warnings(), kind):
        click.echo(f"wrote {path}")
    click.echo(f"next: python -m pip install -e {folder} && python -m pytest {folder}")
