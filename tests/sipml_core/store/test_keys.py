"""Keys change with all that a result depends on, and with nothing else."""

import attrs
import pytest

from sipml_core.cases.candidates import run_candidates
from sipml_core.experiment.reading import read_experiment
from sipml_core.store.keys import code_fingerprint, trial_keys


def test_the_code_of_a_plugin_is_part_of_the_question():
    """Another package, another hash; what came in the same distribution counts as well."""
    assert code_fingerprint(("json",)) != code_fingerprint(("sqlite3",))
    assert code_fingerprint(("json",)) == code_fingerprint(("json",))
    assert code_fingerprint(("sipml_ring",)) == code_fingerprint(("sipml_ocs",))


def test_versions_of_what_decides_numbers_are_part_of_the_question(monkeypatch):
    before = code_fingerprint(("json",))
    code_fingerprint.cache_clear()
    monkeypatch.setattr("sipml_core.store.keys.package_versions", lambda: {"numpy": "0.0"})
    changed = code_fingerprint(("json",))
    code_fingerprint.cache_clear()
    assert changed != before


@pytest.mark.interconnects
def test_a_named_file_counts_by_its_content_wherever_it_lies(registry, tmp_path):
    """So that machines which share a store find each other's results."""

    def key(folder, steps):
        (tmp_path / folder).mkdir(exist_ok=True)
        curve = tmp_path / folder / "steps.csv"
        curve.write_text(f"global_batch,steps\n8,{steps}\n32,{steps}\n")
        experiment = read_experiment(
            {
                "title": "t",
                "cluster": {"gpus": 4, "bandwidth_gbps": 100},
                "workload": {"name": "gpt", "curve": str(curve), "plan": {"mp": 2}},
                "topology": {"name": "elect-flat"},
            },
            registry,
        )
        (candidate,) = run_candidates(experiment.jobs[0], 4)
        return trial_keys("simulation", experiment, candidate, experiment.interconnects[0])

    assert key("here", 100) == key("there", 100)
    assert key("here", 100) != key("here", 200)


@pytest.mark.interconnects
def test_kinds_of_questions_have_keys_of_their_own(registry):
    experiment = read_experiment(
        {
            "title": "t",
            "cluster": {"gpus": 4, "bandwidth_gbps": 100},
            "workload": {"name": "resnet50", "plan": {"mp": 2, "dp": 2, "global_batch": 8}},
            "topology": {"name": "elect-flat"},
        },
        registry,
    )
    (candidate,) = run_candidates(experiment.jobs[0], 4)
    estimate, simulation = (
        trial_keys(kind, experiment, candidate, experiment.interconnects[0])
        for kind in ("estimate", "simulation")
    )
    assert estimate.graph == simulation.graph
    assert estimate.answer != simulation.answer
    other = attrs.evolve(experiment, title="another", baseline="elect-flat")
    assert trial_keys("estimate", other, candidate, other.interconnects[0]) == estimate


@pytest.mark.interconnects
def test_another_bandwidth_is_another_answer_about_the_same_graph(registry):
    """Ops take as long, so that what they were cut into is shared; 8 GPUs are another graph."""

    def key(gpus, bandwidth_gbps):
        experiment = read_experiment(
            {
                "title": "t",
                "cluster": {"gpus": gpus, "bandwidth_gbps": bandwidth_gbps},
                "workload": {"name": "resnet50", "plan": {"mp": 2, "global_batch": 8}},
                "topology": {"name": "elect-flat"},
            },
            registry,
        )
        (candidate,) = run_candidates(experiment.jobs[0], gpus)
        return trial_keys("estimate", experiment, candidate, experiment.interconnects[0])

    assert key(4, 100).graph == key(4, 200).graph != key(8, 100).graph
    assert key(4, 100).answer != key(4, 200).answer
