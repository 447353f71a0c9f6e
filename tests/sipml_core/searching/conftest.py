"""A search whose answers are made up."""

import attrs
import pytest

from sipml_core.experiment.reading import read_experiment
from sipml_core.searching import workers
from sipml_core.searching.searching import search

TABLES = {
    "title": "made up",
    "baseline": "slow",
    "cluster": {"gpus": 8, "bandwidth_gbps": 400},
    "search": {"global_batches": [16], "mp": [2, 4, 8], "top": 1},
    "workload": {"name": "tiny"},
    "topology": [{"name": "switch", "label": "slow"}, {"name": "ring", "label": "fast"}],
}

#: Made up: time of an iteration by the estimate and by the simulation, by interconnect and mp. [us]
ESTIMATE_US = {
    "slow": {1: 950.0, 2: 720.0, 4: 880.0, 8: 990.0},
    "fast": {1: 410.0, 2: 330.0, 4: 370.0, 8: 500.0},
}
SIMULATED_US = {
    "slow": {1: 900.0, 2: 800.0, 4: 850.0, 8: 700.0},
    "fast": {1: 400.0, 2: 320.0, 4: 380.0, 8: 390.0},
}
#: The fake workload needs as many steps at every batch.
STEPS = 100.0


@pytest.fixture
def found(fakes, monkeypatch):
    """found(...): the result of a search whose answers come from the tables above; and what it asked."""
    asked = []

    def answer(worker, kind, trial):
        candidate = worker.candidates(trial.experiment, trial.job)[trial.candidate]
        label = worker.experiments[trial.experiment].interconnects[trial.interconnect].label
        asked.append((kind, label, candidate.mp))
        if kind == workers.ESTIMATE:
            return {
                "iteration_us": ESTIMATE_US[label][candidate.mp], "all_reduce": "flat", "exchange": "direct",
                "memory_bytes": 1e9 * candidate.mp,
            }  # fmt: skip
        time_us = SIMULATED_US[label][candidate.mp]
        return attrs.asdict(
            fakes.case_result(
                workload="?", topology="?", mp=candidate.mp, dp=candidate.dp, gpus=8, global_batch=16,
                iteration_us=time_us, steps_to_accuracy=STEPS, time_to_accuracy_s=time_us * 1e-6 * STEPS,
            )
        )  # fmt: skip

    monkeypatch.setattr(
        workers.Worker,
        "answers",
        lambda self, batch: [answer(self, batch.kind, trial) for trial in batch.trials],
    )

    def run(store=None, sections=None, retry_failed=False, **changes):
        tables = {**TABLES, "search": {**TABLES["search"], **changes}, **(sections or {})}
        experiment = read_experiment(tables, fakes.fake_registry())
        return search([experiment], store=store, retry_failed=retry_failed)[0]

    run.asked, run.estimate_us, run.simulated_us = asked, ESTIMATE_US, SIMULATED_US
    return run
