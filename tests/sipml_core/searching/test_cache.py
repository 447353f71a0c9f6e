"""Answers are kept under all that they depend on, and under nothing else."""

import os

import pytest

from sipml_core.searching.cache import AnswerCache, code_fingerprint, default_cache_folder
from sipml_core.searching.workers import ESTIMATE, SIMULATION


@pytest.fixture
def cache(tmp_path):
    return AnswerCache(tmp_path)


def test_a_second_search_asks_nothing_and_finds_the_same(found, cache):
    first = found(cache)
    found.asked.clear()
    assert found(cache) == first
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
def test_a_changed_question_is_asked_again(found, cache, sections):
    """Of pure data parallelism on the first interconnect: both kinds of question."""
    found(cache, mp=[1])
    found.asked.clear()
    found(cache, mp=[1], sections={"baseline": "slow", **sections})
    assert [ask for ask in found.asked if ask[1] == "slow"] == [
        (ESTIMATE, "slow", 1), (SIMULATION, "slow", 1),
    ]  # fmt: skip


def test_labels_are_not_part_of_a_question(found, cache, tmp_path):
    """The same network under another label is answered from the cache, and is called by its own label."""
    one = [{"name": "switch", "label": "slow"}]
    found(cache, mp=[1], sections={"topology": one, "baseline": "slow"})
    files = set(tmp_path.rglob("*.json"))
    assert len(files) == 2
    again = found(
        cache, mp=[1], sections={"topology": [{"name": "switch", "label": "ideal"}], "baseline": "ideal"}
    )
    assert set(tmp_path.rglob("*.json")) == files
    assert again.best[0].topology == "ideal"


@pytest.mark.parametrize("damaged", ["{", "", "[1]", '{"a": 1}', '{"infeasible": 3}'])
def test_a_damaged_answer_counts_as_none(found, cache, tmp_path, damaged):
    first = found(cache)
    for path in tmp_path.rglob("*.json"):
        path.write_text(damaged)
    assert found(cache) == first


def test_without_a_folder_nothing_is_kept(found):
    assert found(AnswerCache(None)) == found(None)
    assert AnswerCache(None).get("0" * 64) is None


def test_the_code_of_a_plugin_is_part_of_the_question():
    """Another package, another hash; what came in the same distribution counts as well."""
    assert code_fingerprint(("json",)) != code_fingerprint(("sqlite3",))
    assert code_fingerprint(("json",)) == code_fingerprint(("json",))


def test_the_cache_lies_where_caches_do(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache_folder() == tmp_path / "sipml"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_cache_folder() == tmp_path / ".cache" / "sipml"


def test_a_cache_that_has_grown_too_large_keeps_what_was_used_last(tmp_path, monkeypatch):
    """Ten answers of some bytes each, five of which may stay."""
    cache = AnswerCache(tmp_path)
    for number in range(10):
        key = f"{number:064d}"
        cache.put(key, {"number": number})
        os.utime(tmp_path / key[:2] / f"{key[2:]}.json", (number, number))
    monkeypatch.setattr("sipml_core.searching.cache.MOST_BYTES", 9 * len('{"number": 0}'))
    cache.trim()
    kept = [number for number in range(10) if cache.get(f"{number:064d}")]
    assert kept == [6, 7, 8, 9]


def test_versions_of_what_decides_numbers_are_part_of_the_question(monkeypatch):
    before = code_fingerprint(("json",))
    code_fingerprint.cache_clear()
    monkeypatch.setattr("sipml_core.searching.cache.package_versions", lambda: {"numpy": "0.0"})
    changed = code_fingerprint(("json",))
    code_fingerprint.cache_clear()
    assert changed != before
