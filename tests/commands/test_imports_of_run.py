"""A run imports what its experiment names, and nothing else that takes long: so it starts soon."""

import subprocess
import sys

import pytest

EXPERIMENT = """
title = "smallest"
cluster = { gpus = 4, bandwidth_gbps = 400 }
workload = { name = "gpt", layers = 1, strategy = { mp = 1, global_batch = 8 } }
topology = { name = "elect-flat" }
"""

CODE = """
import sys
from sipml_core.cli.main import main
main(["run", "smallest.toml", "--no-store"], standalone_mode=False)
print("imported:", *sorted(sys.modules))
"""

#: What takes long to import, and what the experiment does not name.
NOT_IMPORTED = {
    "concurrent.futures", "dask", "hashlib", "highspy", "matplotlib", "multiprocessing", "networkx",
    "numpy.ma", "numpy.random", "pandas",
    "sipml_electrical.fattree", "sipml_elect_cluster.clusternetwork", "sipml_graph.graphnetwork",
    "sipml_ocs.circuits", "sipml_ocs.kernel", "sipml_photonic.clos", "sipml_ring.circuits",
    "sipml_ring.kernel", "sipml_torus.torus",
    "sipml_core.allocation", "sipml_core.calibrating", "sipml_core.communication.nccl",
    "sipml_core.details.casedetails", "sipml_core.estimators", "sipml_core.executing",
    "sipml_core.gpus.shapedsheets", "sipml_core.reproduce", "sipml_core.searching", "sipml_core.sharing",
    "sipml_core.store.keys", "sipml_core.sweeping", "sipml_core.validating",
    "sipml_core.workloads.languagemodels", "sipml_core.workloads.resnet",
}  # fmt: skip


@pytest.mark.interconnects
def test_a_run_imports_only_what_its_experiment_names(tmp_path):
    (tmp_path / "smallest.toml").write_text(EXPERIMENT)
    done = subprocess.run(
        [sys.executable, "-c", CODE], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    imported = set(done.stdout.rpartition("imported: ")[2].split())
    assert {"numpy", "sipml_elect_flat", "sipml_core.workloads.gpt"} <= imported
    assert sorted(NOT_IMPORTED & imported) == []
