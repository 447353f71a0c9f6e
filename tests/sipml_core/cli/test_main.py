"""The group of commands imports a command when it is named."""

import subprocess
import sys
from pathlib import Path

import click
import pytest

import sipml_core.cli
from sipml_core.cli.main import COMMANDS, main


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_where_the_group_says_and_has_that_name(name):
    command = main.get_command(click.Context(main), name)
    assert isinstance(command, click.Command)
    assert command.name == name


def test_all_files_of_commands_are_named():
    """A file `*_command.py` or `*_commands.py` that the group does not name would be no command."""
    files = {path.stem for path in Path(sipml_core.cli.__file__).parent.glob("*_command*.py")}
    assert {where.partition(":")[0] for where in COMMANDS.values()} == files


def test_a_command_imports_no_other():
    """What stands beside `run` in its file is all that comes with it."""
    code = "import sys, click; from sipml_core.cli.main import main"
    code += "; main.get_command(click.Context(main), 'run')"
    code += "; print(*(name for name in sys.modules if '_command' in name))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["sipml_core.cli.run_command"]
