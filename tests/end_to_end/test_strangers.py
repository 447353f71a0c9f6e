"""Plugins of others: what is installed beside the bundled ones changes no test, and names mean nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sipml_core import bundled
from sipml_core.cases import run_experiment
from sipml_core.experiment import read_experiment
from sipml_core.plugin import hookimpl
from sipml_core.plugin.registry import Source, collect

ROOT = Path(__file__).resolve().parents[2]

STRANGER = """
import attrs
from sipml_core.plugin import Topology, hookimpl

class Other(Topology):
    name = "sip-ring-of-a-stranger"
    summary = "is in nobody's way"

    def build(self, cluster):
        raise NotImplementedError

class Clash(Other):
    name = "elect-flat"

@hookimpl
def sipml_topologies():
    return [Other, Clash]

@hookimpl
def sipml_run_finished(result):
    raise RuntimeError("a stranger's observer was called")
"""

#: A test module that asks for the fixtures and runs the commands that tests of this suite do.
INNER = """
import subprocess, sys
from click.testing import CliRunner
from sipml_core.cli.main import main
from sipml_core.plugin import load

def test_registry(registry):
    assert registry.problems == []
    assert "sip-ring-of-a-stranger" not in registry.names("topology")
    assert {source.distribution.split()[0] for source in registry.sources} == {"sipml"}
    assert registry.observers("sipml_run_finished") == []

def test_what_commands_and_worker_processes_load(registry):
    assert load().trace == registry.trace

def test_commands(registry, tmp_path):
    file = tmp_path / "quickstart.toml"
    for arguments in (["new-experiment", file], ["validate", file], ["plugins"]):
        done = CliRunner().invoke(main, list(map(str, arguments)))
        assert done.exit_code == 0, done.output
        assert "stranger" not in done.output
    shown = subprocess.run(
        [sys.executable, "-m", "sipml_core", "plugins"], capture_output=True, text=True, check=True
    )
    assert "stranger" not in shown.stdout + shown.stderr
"""


@pytest.fixture
def stranger(tmp_path):
    """A folder with an installed distribution: a topology of its own, one that clashes, and an observer."""
    site = tmp_path / "site"
    info = site / "stranger-1.dist-info"
    info.mkdir(parents=True)
    (site / "strangers_module.py").write_text(STRANGER)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[sipml]\nstranger = strangers_module\n")
    return site


def python(*arguments, site, cwd):
    path = os.pathsep.join([str(site), *filter(None, sys.path)])
    environment = {key: value for key, value in os.environ.items() if key != "SIPML_DISABLE_PLUGINS"}
    return subprocess.run(
        [sys.executable, *map(str, arguments)], cwd=cwd, capture_output=True, text=True,
        env={**environment, "PYTHONPATH": path},
    )  # fmt: skip


@pytest.mark.slow
def test_an_installed_strangers_plugin_changes_no_test(stranger, tmp_path):
    """It stops every command, as it offers a name that is taken; the suite does not see it."""
    stopped = python("-m", "sipml_core", "plugins", site=stranger, cwd=tmp_path)
    assert stopped.returncode == 2
    assert "two plugins offer the topology 'elect-flat'" in stopped.stderr
    suite = tmp_path / "suite"
    suite.mkdir()
    (suite / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (suite / "test_inner.py").write_text(INNER)
    done = python("-m", "pytest", "-q", "-p", "no:cacheprovider", suite, site=stranger, cwd=suite)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def renamed(registry):
    """A registry of the core, of the bundled schedulers, and of each interconnect under another name."""
    schedulers = [entry.component for entry in registry.entries["scheduler"].values()]
    topologies = [
        type("Renamed", (entry.component,), {"name": f"my-{name}"[::-1]})
        for name, entry in registry.entries["topology"].items()
    ]

    class Plugin:
        @hookimpl
        def sipml_topologies(self):
            return topologies

        @hookimpl
        def sipml_schedulers(self):
            return schedulers

    core = Source(plugin="core", distribution="sipml"), bundled
    return collect([core, (Source(plugin="mine", distribution="tests"), Plugin())])


@pytest.mark.parametrize("topology", ["elect-flat", "elect-cluster", "sip-ocs", "sip-ring"])
def test_the_name_of_an_interconnect_means_nothing_to_the_core(registry, topology):
    """Under another name, by another plugin: the same numbers."""

    def case(known, name):
        tables = {
            "title": "names",
            "cluster": {"gpus": 8, "bandwidth_gbps": 200},
            "workload": {
                "name": "gpt", "layers": 1, "hidden": 64, "heads": 4, "sequence": 32, "vocabulary": 100,
                "strategy": {"mp": 2, "dp": 4, "global_batch": 16},
            },
            "topology": {"name": name, "label": "net"},
        }  # fmt: skip
        return run_experiment(read_experiment(tables, known)).cases[0]

    assert case(renamed(registry), f"my-{topology}"[::-1]) == case(registry, topology)
