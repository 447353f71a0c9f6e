"""No circle between files, in Python or in C; and the examples in docstrings run."""

import ast
import doctest
import graphlib
import importlib
import os
import pkgutil
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import hwsim

PACKAGE = Path(hwsim.__file__).parent
MODULES = sorted(module.name for module in pkgutil.iter_modules([str(PACKAGE)]) if module.name[:2] != "__")


def imported(path):
    """Modules of hwsim that a file imports anywhere, for type checkers too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "hwsim":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hwsim."):
            yield node.module.split(".")[1]


def test_no_module_imports_one_that_imports_it():
    graph = {path.stem: set(imported(path)) for path in PACKAGE.glob("*.py") if path.stem != "__init__"}
    order = list(graphlib.TopologicalSorter(graph).static_order())
    assert order.index("optics") < order.index("bank") < order.index("phy")


@pytest.mark.skipif(shutil.which("nm") is None or shutil.which("cc") is None, reason="no compiler or nm")
def test_no_c_source_calls_one_that_calls_it(tmp_path):
    """By the symbols that each object defines and needs."""
    defines, needs = {}, {}
    for source in (PACKAGE / "csrc").glob("*.c"):
        compiled = tmp_path / f"{source.stem}.o"
        command = [os.environ.get("CC", "cc"), "-std=c99", "-c", str(source), "-o", str(compiled)]
        subprocess.run(command, check=True)
        listing = subprocess.run(["nm", "-P", str(compiled)], capture_output=True, text=True, check=True)
        for symbol, kind, *_ in map(str.split, listing.stdout.splitlines()):
            if kind == "T":
                defines[symbol] = source.stem
            elif kind == "U":
                needs.setdefault(source.stem, set()).add(symbol)
    graph = {source: {defines[s] for s in symbols if s in defines} for source, symbols in needs.items()}
    order = list(graphlib.TopologicalSorter(graph).static_order())
    assert order.index("ring") < order.index("control") < order.index("advance")


def examples():
    for name in MODULES:
        if name not in ("_hwsim", "ffi_build"):
            module = importlib.import_module(f"hwsim.{name}")
            names = {**vars(module), "np": np, "hwsim": hwsim}
            yield from (t for t in doctest.DocTestFinder().find(module, extraglobs=names) if t.examples)


@pytest.mark.parametrize("example", list(examples()), ids=lambda example: example.name)
def test_example_in_a_docstring_prints_what_it_shows(example):
    complaints = []
    results = doctest.DocTestRunner().run(example, out=complaints.append)
    assert results.failed == 0, "".join(complaints)
