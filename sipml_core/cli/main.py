"""The command line's entry: one group of commands, and the one line that each error becomes.

Only in this room are errors caught broadly, and only here is anything printed. Commands import what they
need when they run, and are imported themselves when one is named, so that each answers at once.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import click

from sipml_core import __version__
from sipml_core.cli.interrupts import interrupts_noticed
from sipml_core.cli.keeping import left_behind
from sipml_core.cli.pipes import readers_that_leave
from sipml_core.errors import ConfigError, InfeasibleError, PluginError, SipmlError

#: Exit status: nothing could be started / what was started did not end / 128 + SIGINT, as shells have it.
REFUSED, FAILED, INTERRUPTED = 2, 1, 130


#: Where each command is: its file, imported when the command is run or listed, and its name there.
COMMANDS = {
    "run": "run_command:run",
    "validate": "run_command:validate",
    "search": "search_command:search",
    "explain": "search_command:explain",
    "sweep": "sweep_command:sweep",
    "compare": "compare_command:compare",
    "plot": "plot_command:plot",
    "report": "report_command:report",
    "reproduce": "reproduce_command:reproduce",
    "circuits": "circuits_command:circuits",
    "collectives": "collectives_command:collectives",
    "calibrate": "calibrate_command:calibrate",
    "share": "share_command:share",
    "plugins": "plugins_command:plugins",
    "store": "store_command:store",
    "new-experiment": "new_commands:new_experiment",
    "new-plugin": "new_commands:new_plugin",
}


class AnsweringGroup(click.Group):
    """A group whose commands answer what sipml raises on purpose, and an interrupt, in one line."""

    def make_context(self, *arguments: Any, **extra: Any) -> click.Context:
        """Read the words of a command line; ``--help`` is answered here."""
        with readers_that_leave():
            return super().make_context(*arguments, **extra)

    def list_commands(self, context: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Return a command; None: there is none of that name."""
        if name not in COMMANDS:
            return None
        file, _, found = COMMANDS[name].partition(":")
        command: click.Command = getattr(import_module(f"sipml_core.cli.{file}"), found)
        return command

    def invoke(self, context: click.Context) -> Any:
        """Run the command that was asked for."""
        with readers_that_leave(), interrupts_noticed() as interrupts:
            try:
                with readers_that_leave():
                    return super().invoke(context)
            except BaseException as error:
                answer = _answer(KeyboardInterrupt() if interrupts else error)
                if answer is None:
                    raise
                line, status = answer
                click.echo(f"sipml: {line}", err=True)
                raise SystemExit(status) from None


def _answer(error: BaseException) -> tuple[str, int] | None:
    """The line for an error, and the exit status; None: it is nobody's purpose."""
    if isinstance(error, KeyboardInterrupt):
        return f"interrupted{left_behind()}", INTERRUPTED
    if isinstance(error, SipmlError):
        refused = isinstance(error, (ConfigError, InfeasibleError, PluginError))
        return str(error), REFUSED if refused else FAILED
    if isinstance(error, MemoryError):
        why = f": {error}" if str(error) else ""
        return f"there is not enough memory{why}{left_behind()}", FAILED
    if isinstance(error, OSError):
        return f"input or output failed: {error}{left_behind()}", FAILED
    return None


@click.group(cls=AnsweringGroup, context_settings={"help_option_names": ["-h", "--help"]})
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

    \b
    Exit status: 0 all ran; 1 results are written, but a case is infeasible, unfinished or failed;
    2 nothing could be started; 130 interrupted; 141 nobody reads its output any more.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # letters that a terminal does not have are spelt, not fatal
            stream.reconfigure(errors="backslashreplace")
