"""Answers are kept under all that they depend on, and under nothing else."""

import json

import pytest

from sipml_core.searching.answering import _batches
from sipml_core.searching.workers import ESTIMATE, SIMULATION, Trial
from sipml_core.store import Keys
from sipml_core.store.resultstore import FORMAT, ResultStore


@pytest.fixture
def store(tmp_path):
    return ResultStore(tmp_path)


def test_a_second_search_asks_nothing_and_finds_the_same(found, store):
    first = found(store)
    found.asked.clear()
    assert found(store) == first
    assert found.asked == []


@pytest.mark.parametrize(
    "sections",
    [
        {"cluster": {"gpus": 16, "bandwidth_gbps": 400}},
        {"cluster": {"gpus": 8, "bandwidth_gbps": 200}},
        {"strategy": {"tau_us": 5}},
        {"strategy": {"layout": "sample"}},
        {"gpu": {"precision": "fp32"}},
        {"engine": {"queue": "source"}},
        {"seed": 1},
        {"workload": {"name": "tiny", "layers": 3}},
        {"topology": [{"name": "ring", "label": "slow", "reach_hops": 8}]},
        {"topology": [{"name": "ring", "label": "slow", "estimator": {"name": "window", "share": 0.5}}]},
    ],
    ids=lambda sections: str(next(iter(sections.values()))),
)
def test_a_changed_question_is_asked_again(found, store, sections):
    """Of pure data parallelism on the first interconnect: both kinds of question."""
    found(store, mp=[1])
    found.asked.clear()
    found(store, mp=[1], sections={"baseline": "slow", **sections})
    assert [ask for ask in found.asked if ask[1] == "slow"] == [
        (ESTIMATE, "slow", 1), (SIMULATION, "slow", 1),
    ]  # fmt: skip


def test_labels_are_not_part_of_a_question(found, store, tmp_path):
    """The same network under another label is answered from the store, and is called by its own label."""
    one = [{"name": "switch", "label": "slow"}]
    found(store, mp=[1], sections={"topology": one, "baseline": "slow"})
    files = set(tmp_path.rglob("*.json"))
    assert len(files) == 2
    again = found(
        store, mp=[1], sections={"topology": [{"name": "switch", "label": "ideal"}], "baseline": "ideal"}
    )
    assert set(tmp_path.rglob("*.json")) == files
    assert again.best[0].topology == "ideal"


@pytest.mark.parametrize("damaged", ["{", "", "[1]", '{"format": 1, "answer": {}}'])
def test_a_damaged_answer_counts_as_none(found, store, tmp_path, damaged):
    first = found(store)
    for path in tmp_path.rglob("*.json"):
        path.write_text(damaged)
    assert found(store) == first


@pytest.mark.parametrize("answer", [{"a": 1}, {"infeasible": 3}, {}])
def test_an_answer_of_other_columns_counts_as_none(found, store, tmp_path, answer):
    """As one of another version is: its file is whole, but what is in it is not what is asked."""
    first = found(store)
    record = {"format": FORMAT, "kind": "estimate", "answer": answer, "about": "", "details": {}}
    for path in tmp_path.rglob("*.json"):
        path.write_text(json.dumps(record))
    assert found(store) == first


def test_what_cannot_be_is_asked_again_only_if_wanted(found, store, tmp_path):
    """Every answer is replaced by a reason: it stands, and is asked for again on request."""
    found(store)
    record = {"format": FORMAT, "kind": "?", "answer": {"infeasible": "no"}, "about": "", "details": {}}
    for path in tmp_path.rglob("*.json"):
        path.write_text(json.dumps(record))
    found.asked.clear()
    assert found(store).best == ()
    assert found.asked == []
    assert [case.mp for case in found(store, retry_failed=True).best] == [2, 2]


def test_without_a_folder_nothing_is_kept(found):
    assert found(ResultStore(None)) == found(None)
    assert ResultStore(None).get("0" * 64) is None


def test_bandwidths_of_one_network_stand_side_by_side_in_a_batch():
    """Two experiments, which differ in bandwidth, two candidates, two networks; a candidate is one graph."""
    trials = [Trial(e, 0, c, i) for e in (0, 1) for c in (0, 1) for i in (0, 1)]
    keys = {trial: Keys(f"candidate {trial.candidate}", str(trial)) for trial in trials}
    first, second = _batches(ESTIMATE, trials, keys, most=4)
    assert [(t.candidate, t.interconnect, t.experiment) for t in first.trials] == [
        (0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1)
    ]  # fmt: skip
    assert {trial.candidate for trial in second.trials} == {1}
    assert first.keys == tuple(map(str, first.trials))
    assert [len(batch.trials) for batch in _batches(ESTIMATE, trials, keys, most=3)] == [3, 1, 3, 1]
