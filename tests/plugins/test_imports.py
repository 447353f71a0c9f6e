"""Data flows one way inside a plugin too, and no plugin knows another."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from importlib.util import find_spec
from pathlib import Path

import pytest

PLUGINS = (
    "sipml_elect_cluster", "sipml_elect_flat", "sipml_electrical", "sipml_graph", "sipml_ocs",
    "sipml_photonic", "sipml_ring", "sipml_torus",
)  # fmt: skip


def home(plugin):
    return Path(find_spec(plugin).origin).parent


def imports(path):
    """Full names of everything that a file imports, for type checkers alone as well."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("plugin", PLUGINS)
def test_files_of_a_plugin_can_be_read_one_after_the_other(plugin):
    """An order exists in which each file imports only earlier ones."""
    files = {path.stem: path for path in home(plugin).glob("*.py") if path.stem != "ffi_build"}
    needs = {}
    for name, path in files.items():
        found = (
            imported.removeprefix(f"{plugin}.") for imported in imports(path) if f"{plugin}." in imported
        )
        needs[name] = {part for full in found for part in full.split(".")[:1] if part in files}
    order = list(TopologicalSorter(needs).static_order())  # raises CycleError
    assert set(order) == set(files)


@pytest.mark.parametrize("plugin", PLUGINS)
def test_a_plugin_imports_no_other_plugin(plugin):
    others = {name for name in PLUGINS if name != plugin}
    for path in home(plugin).glob("*.py"):
        assert others.isdisjoint(name.split(".")[0] for name in imports(path)), path.name


@pytest.mark.parametrize("plugin", ["sipml_ocs", "sipml_ring"])
def test_loading_a_plugin_does_not_load_highs(plugin):
    """It takes longer to import than the rest together, and most runs never ask for it."""
    code = f"import sys, {plugin}.plugin; sys.exit('highspy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
