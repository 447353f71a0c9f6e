"""``plugins``: what can be named in an experiment."""

from __future__ import annotations

import click

from sipml_core.cli.asking import console, plugins_with_warnings


@click.command()
@click.argument("name", required=False)
@click.option("--trace", is_flag=True, help="Show instead which plugins are loaded and called, in order.")
def plugins(name: str | None, trace: bool) -> None:
    """List what is installed, or show the options of NAME with units and defaults.

    SIPML_DISABLE_PLUGINS=NAME,NAME in the environment leaves plugins out.
    """
    from sipml_core.report import component_page, components_table, trace_lines

    registry = plugins_with_warnings()
    if trace:
        for line in trace_lines(registry):
            click.echo(line)
        return
    console().print(components_table(registry) if name is None else component_page(registry, name))
