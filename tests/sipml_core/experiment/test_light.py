"""Checking a file takes no simulator: what is imported on the way to an `Experiment`."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.interconnects

READ = """
import sys
from pathlib import Path
from sipml_core.experiment import read_experiment, read_tables
from sipml_core.plugin import load

registry = load()
assert not registry.problems, registry.problems
experiment = read_experiment(read_tables(Path(sys.argv[1])), registry)
print(experiment.title, *sorted(sys.modules))
"""

EXPERIMENT = """
title = "light"
cluster = { gpus = 8, bandwidth_gbps = 100 }
workload = { name = "gpt", strategy = { mp = 2, dp = 4 } }
topology = [{ name = "elect-flat", estimator = "oracle" }, { name = "graph", file = "net.csv" }]
"""


#: What a run needs and reading does not. Circuit plugins, where they are installed, bring small kernels.
HEAVY = {
    *(f"sipml_core.{room}" for room in ("engine", "lowering", "cases", "search", "report", "cli")),
    "highspy", "networkx", "rich", "matplotlib",
}  # fmt: skip


def modules_after_reading(folder, *disabled):
    (folder / "x.toml").write_text(EXPERIMENT)
    (folder / "net.csv").touch()
    left_out = ",".join([os.environ["SIPML_DISABLE_PLUGINS"], *disabled])
    done = subprocess.run(
        [sys.executable, "-c", READ, str(folder / "x.toml")],
        env={**os.environ, "SIPML_DISABLE_PLUGINS": left_out},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    title, *modules = done.stdout.split()
    assert title == "light"
    assert "sipml_core.estimators.oracle" in modules
    return set(modules)


def test_reading_an_experiment_loads_no_simulator_with_all_plugins(tmp_path):
    """Neither engine, solver nor graph library, though a topology of the file reads graphs."""
    assert not HEAVY & modules_after_reading(tmp_path)


def test_without_circuit_plugins_reading_loads_no_compiled_kernel(tmp_path):
    modules = modules_after_reading(tmp_path, "sip-ring", "sip-ocs", "photonic", "torus")
    assert not {*HEAVY, "sipml_core.scheduling", "_cffi_backend"} & modules
