"""A measured training step as a case that can be compiled and run."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sipml_core.cases import Case
from sipml_core.experiment import read_experiment
from sipml_core.plugin import Registry
from sipml_core.validating.rows import MeasuredRow


@contextlib.contextmanager
def case_of(row: MeasuredRow, registry: Registry) -> Iterator[Case]:
    """Give the case of a row's tables; a configuration of a model lies in a file meanwhile."""
    assert row.tables is not None
    tables = dict(row.tables)
    with tempfile.TemporaryDirectory() as folder:
        if "configuration" in tables["workload"]:
            workload = dict(tables["workload"])
            file = Path(folder) / "config.json"
            file.write_text(json.dumps(workload.pop("configuration")), encoding="utf-8")
            tables["workload"] = {"name": "hf", "file": str(file), **workload}
        experiment = read_experiment(tables, registry)
        job, interconnect = experiment.jobs[0], experiment.interconnects[0]
        yield Case.of(experiment, job, interconnect, job.plan(row.gpus))
