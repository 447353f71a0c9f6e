"""Checking a file takes no simulator: what is imported on the way to an `Experiment`."""

import os
import subprocess
import sys

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


def test_reading_an_experiment_loads_no_simulator(tmp_path):
    """No kernel, solver or graph library; the circuit plugins are left out, which bring their own."""
    (tmp_path / "x.toml").write_text(EXPERIMENT)
    (tmp_path / "net.csv").touch()
    done = subprocess.run(
        [sys.executable, "-c", READ, str(tmp_path / "x.toml")],
        env={**os.environ, "SIPML_DISABLE_PLUGINS": "sip-ring,sip-ocs"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    title, *modules = done.stdout.split()
    assert title == "light"
    assert "sipml_core.estimators.oracle" in modules
    rooms = ("engine", "scheduling", "lowering", "cases", "search", "report", "cli")
    others = ("_cffi_backend", "highspy", "networkx", "rich", "matplotlib")
    assert not {*(f"sipml_core.{room}" for room in rooms), *others} & set(modules)
