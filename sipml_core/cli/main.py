"""The command line's entry: one group of commands, and the one line that each error becomes.

Only in this room are errors caught broadly, and only here is anything printed. Commands import what they
need when they run, so that ``--help`` answers at once.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from sipml_core import __version__
from sipml_core.cli.calibrate_command import calibrate
from sipml_core.cli.circuits_command import circuits
from sipml_core.cli.collectives_command import collectives
from sipml_core.cli.compare_command import compare
from sipml_core.cli.interrupts import interrupts_noticed
from sipml_core.cli.keeping import left_behind
from sipml_core.cli.new_commands import new_experiment, new_plugin
from sipml_core.cli.pipes import readers_that_leave
from sipml_core.cli.plot_command import plot
from sipml_core.cli.plugins_command import plugins
from sipml_core.cli.report_command import report
from sipml_core.cli.reproduce_command import reproduce
from sipml_core.cli.run_command import run, validate
from sipml_core.cli.search_command import explain, search
from sipml_core.cli.share_command import share
from sipml_core.cli.store_command import store
from sipml_core.cli.sweep_command import sweep
from sipml_core.errors import ConfigError, InfeasibleError, PluginError, SipmlError

#: Exit status: nothing could be started / what was started did not end / 128 + SIGINT, as shells have it.
REFUSED, FAILED, INTERRUPTED = 2, 1, 130


class AnsweringGroup(click.Group):
    """A group whose commands answer what sipml raises on purpose, and an interrupt, in one line."""

    def make_context(self, *arguments: Any, **extra: Any) -> click.Context:
        """Read the words of a command line; ``--help`` is answered here."""
        with readers_that_leave():
            return super().make_context(*arguments, **extra)

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


for command in (
    run, validate, search, explain, sweep, compare, plot, report, reproduce, circuits, collectives, calibrate,
    share, plugins, store,
    new_experiment, new_plugin,
):  # fmt: skip
    main.add_command(command)
