"""Cases are prepared before their tasks are made, which are let go of when they have run."""

import gc
import weakref

import pytest

from sipml_core.cases import Case, ExperimentRun, Reuse, compile_case, preparation, run_experiment, simulating
from sipml_core.cases.compilation import prepare_case
from sipml_core.engine import simulate
from sipml_core.errors import InfeasibleError
from sipml_core.experiment import read_experiment
from sipml_core.model import RelayedTasks

pytestmark = pytest.mark.interconnects

TABLES = {
    "title": "prepared",
    "cluster": {"gpus": 16, "bandwidth_gbps": 100},
    "gpu": {"name": "a100"},
    "plan": {"mp": 4, "dp": 4, "global_batch": 16, "layout": "megatron", "placer": "aligned", "tau_us": 0.1},
    "workload": [{"name": "gpt", "layers": 2, "hidden": 64, "heads": 4, "sequence": 16, "vocabulary": 100}],
    "topology": [{"name": "elect-flat"}, {"name": "sip-ocs"}],
}


@pytest.fixture
def experiment(registry):
    return read_experiment(TABLES, registry)


def case_on(experiment, number):
    (job,) = experiment.jobs
    return Case.of(experiment, job, experiment.interconnects[number], job.plan(16))


@pytest.mark.parametrize("number", [0, 1])
def test_what_is_prepared_makes_the_tasks_that_compiling_makes(experiment, number):
    """A folded case has none before; what comes out is the same, and one replica of four."""
    prepared = prepare_case(case_on(experiment, number), Reuse())
    assert [each.made for each in prepared] == [None] * len(prepared)
    for each, compiled in zip(prepared, compile_case(case_on(experiment, number), Reuse()), strict=True):
        assert each.plan == compiled.plan
        assert each.compiled().tasks.size_bytes.tolist() == compiled.tasks.size_bytes.tolist()
        assert each.compiled().repeats == 4


def test_of_large_jobs_one_graph_of_tasks_is_alive(experiment, monkeypatch):
    """The switch and the first exchange of the circuits differ; when one runs, those before it are gone."""
    monkeypatch.setattr(preparation, "MOST_NODES_KEPT", 0)
    known, alive = [], []

    def watched(tasks, network, **options):
        gc.collect()
        if all(each() is not tasks.successors for each in known):
            known.append(weakref.ref(tasks.successors))
        alive.append(sum(each() is not None for each in known))
        return simulate(tasks, network, **options)

    monkeypatch.setattr(simulating, "simulate", watched)
    ExperimentRun(experiment, timelines=False).go()
    assert len(known) >= 2
    assert alive == [1] * len(alive)


def test_timelines_are_kept_where_they_are_asked_for(experiment):
    """With the same rows without them."""
    running = ExperimentRun(experiment, timelines=False)
    running.go()
    bare, whole = running.result(), run_experiment(experiment)
    assert bare.cases == whole.cases
    assert bare.timelines == (None, None)
    assert [timeline.total_us for timeline in whole.timelines] == [case.iteration_us for case in whole.cases]


def test_rows_are_the_same_leg_by_leg(registry):
    """Where no timeline is kept a folded group on a chain has one row for all legs of a transfer."""
    tables = TABLES | {
        "plan": {"mp": 8, "dp": 2, "global_batch": 16},
        "workload": [{"name": "transformer"}],
        "topology": [{"name": "sip-ocs"}],
    }
    experiment = read_experiment(tables, registry)
    prepared = prepare_case(case_on(experiment, 0), Reuse())
    relayed = [each.compiled(relayed=True) for each in prepared]
    assert any(isinstance(compiled.work, RelayedTasks) for compiled in relayed)
    for each, compiled in zip(prepared, relayed, strict=True):
        assert each.compiled().work.src.tolist() == compiled.explicit().work.src.tolist()
    running = ExperimentRun(experiment, timelines=False)
    running.go()
    assert running.result().cases == run_experiment(experiment).cases


def test_what_cannot_be_put_in_order_is_refused_before_any_tasks_are_made(experiment, monkeypatch):
    """More passes of more tasks than priorities have bits."""
    monkeypatch.setattr("sipml_core.lowering.passtasks._MAX_PRIORITY", 10)
    monkeypatch.setattr(preparation, "first_groups", None)
    with pytest.raises(InfeasibleError, match="more than can be put in order"):
        prepare_case(case_on(experiment, 0), Reuse())
