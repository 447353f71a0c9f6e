"""Records are whole or not there, and say what they hold."""

import os
import stat

import pytest

from sipml_core.errors import ConfigError
from sipml_core.store.contents import Contents, prune, store_contents, trim
from sipml_core.store.resultstore import Record, ResultStore, default_store_folder, usable_store

KEY = "ab" + "0" * 62


@pytest.fixture
def store(tmp_path):
    return ResultStore(tmp_path / "store")


def record(**answer):
    return Record(kind="simulation", answer=answer)


def test_what_was_put_is_found_again(store):
    store.put(KEY, record(iteration_us=1.5))
    assert store.get(KEY) == record(iteration_us=1.5)
    assert store.get("cd" + "0" * 62) is None


def test_a_record_says_which_details_it_holds(store):
    """One kept without is none for who asks for them; one with them serves both."""
    store.put(KEY, record(iteration_us=1.5))
    assert store.get(KEY, details=["timeline"]) is None
    with_details = Record(kind="simulation", answer={"iteration_us": 1.5}, details={"timeline": [1, 2]})
    store.put(KEY, with_details)
    assert store.get(KEY, details=["timeline"]) == with_details
    store.put(KEY, record(iteration_us=1.5))
    assert store.get(KEY) == with_details


def test_details_of_another_answer_do_not_stay(store):
    store.put(KEY, Record(kind="simulation", answer={"iteration_us": 1.0}, details={"timeline": [1]}))
    store.put(KEY, record(iteration_us=2.0))
    assert store.get(KEY) == record(iteration_us=2.0)


def test_a_record_that_cannot_be_written_leaves_nothing(store, monkeypatch):
    """The disk is full when the file gets its name: what was kept before stays as it was."""
    store.put(KEY, record(iteration_us=1.0))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ConfigError, match="No space left on device; choose another with --store"):
        store.put(KEY, record(iteration_us=2.0))
    assert store.get(KEY) == record(iteration_us=1.0)
    assert [path.name for path in (store.folder / "ab").iterdir()] == [f"{KEY[2:]}.json"]


def test_a_store_that_cannot_be_written_is_refused_where_it_was_named(tmp_path, monkeypatch):
    """The user's own is done without, and a warning says so."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot write to the store .*file/store"):
        usable_store(tmp_path / "file" / "store")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    store, warning = usable_store(None)
    assert store.folder is None
    assert warning.startswith("results are not kept: cannot write to the store")


def test_the_store_lies_where_caches_do(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_store_folder() == tmp_path / "sipml"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_store_folder() == tmp_path / ".cache" / "sipml"


def test_contents_are_counted_by_kind(store):
    """Two simulations, one of which says why there is none, an estimate, and a file of an older format."""
    store.put("aa1" + "0" * 61, record(iteration_us=1.0))
    store.put("aa2" + "0" * 61, record(infeasible="too large"))
    store.put("bb1" + "0" * 61, Record(kind="estimate", answer={"iteration_us": 2.0}))
    (store.folder / "bb" / f"{2:062d}.json").write_text('{"iteration_us": 3.0}')
    size = sum(path.stat().st_size for path in store.files())
    assert store_contents(store) == Contents(
        size_bytes=size, kinds={"simulation": 2, "estimate": 1}, failed=1, unreadable=1
    )


def aged(store, count):
    """So many records of one size, the n-th last used n seconds after the epoch."""
    for number in range(count):
        store.put(f"{number:064d}", record(number=number))
        path = store.folder / "00" / f"{number:062d}.json"
        os.utime(path, (number, number))
    return path.stat().st_size


def kept(store, count):
    return [number for number in range(count) if store.get(f"{number:064d}")]


def test_a_store_that_has_grown_too_large_keeps_what_was_used_last(store, monkeypatch):
    """Ten records, nine of which may stay before it is trimmed to half of that: four."""
    size = aged(store, 10)
    monkeypatch.setattr("sipml_core.store.contents.MOST_BYTES", 9 * size)
    trim(store)
    assert kept(store, 10) == [6, 7, 8, 9]


def test_files_of_others_in_the_folder_are_never_removed(store):
    store.put(KEY, Record(kind="estimate", answer={"iteration_us": 3.0}))
    other = store.folder / "en" / "messages.json"
    other.parent.mkdir()
    other.write_text("{}")
    assert prune(store, down_to_bytes=0)[0] == 1
    assert other.exists()


def test_pruning_by_age_leaves_what_was_used_lately(store):
    """Four were last used in 1970; one now."""
    size = aged(store, 4)
    store.put(KEY, record(number=4))
    assert prune(store, unused_days=30) == (4, 4 * size)
    assert store.get(KEY) == record(number=4)
    assert prune(store, down_to_bytes=0)[0] == 1
    assert list(store.files()) == []


def test_others_may_read_what_was_kept(store):
    """Machines that share a store may run as several users."""
    store.put(KEY, record(number=1))
    (path,) = store.files()
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
