"""What pages say of results is what the results in the repository say."""

import doctest
import importlib
import importlib.util
import pkgutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

_spec = importlib.util.spec_from_file_location("results", ROOT / "docs" / "results.py")
results = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(results)


def test_no_page_is_stale():
    assert list(results.stale()) == [], "run python docs/results.py"


def test_every_block_stands_in_one_page():
    pages = [(ROOT / "docs" / name).read_text(encoding="utf-8") for name in results.PAGES]
    found = [match[2] for page in pages for match in results.BLOCK.finditer(page)]
    assert sorted(found) == sorted(results.BLOCKS)


def test_examples_in_the_tables_modules_hold():
    package = importlib.import_module("result_tables")
    modules = [f"result_tables.{found.name}" for found in pkgutil.iter_modules(package.__path__)]
    results = [doctest.testmod(importlib.import_module(name), report=True) for name in modules]
    assert sum(found.attempted for found in results) > 4
    assert [name for name, found in zip(modules, results, strict=True) if found.failed] == []


@pytest.mark.parametrize("name", [path.stem for path in sorted(results.common.RESULTS.glob("*.csv"))])
def test_a_changed_result_makes_a_page_stale(monkeypatch, name):
    """Every number of the file multiplied by 7, those of others as they are."""
    real = results.common.rows

    def changed(asked):
        if asked != name:
            return real(asked)
        return [{key: seven_fold(value) for key, value in row.items()} for row in real(asked)]

    monkeypatch.setattr(results.common, "rows", changed)
    assert list(results.stale())


def seven_fold(text):
    try:
        return str(7 * float(text))
    except ValueError:
        return text
