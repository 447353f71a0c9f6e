"""Data flows one way: a room imports only rooms below it."""

import ast
from pathlib import Path

import pytest

import sipml_core

ROOT = Path(sipml_core.__file__).parent

#: Rooms from the ground up; those on one line may not import each other's later members.
FLOORS = [
    ["errors", "interrupts"],
    ["units", "checks", "csvtable"],
    ["options"],
    ["model"],
    ["interfaces"],
    ["workloads"],
    ["gpus"],
    ["parallel"],
    ["engine"],
    ["circuits"],
    ["hookspecs"],
    ["builtin", "plugins"],
    ["structure", "overrides", "located", "scaffold"],
    ["config"],
    ["forms"],
    ["prepare", "candidates"],
    ["runner", "planning"],
    ["search"],
    ["reproduce"],
    ["report"],
    ["cli"],
    ["__main__"],
]
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}


def room_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[0]


def imports(path: Path):
    """Rooms of the core that a file imports at run time (not under TYPE_CHECKING)."""
    tree = ast.parse(path.read_text())
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sipml_core"):
            parts = node.module.split(".")
            names = [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]
            yield from (name for name in names if not name.startswith("__"))
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("sipml_core."):
                    yield alias.name.split(".")[1]


FILES = sorted(path for path in ROOT.rglob("*.py") if path.name != "ffi_build.py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_room_imports_a_higher_one(path):
    """`testing` is for plugin authors: it may import everything, and nothing imports it."""
    room = room_of(path)
    if room in ("__init__", "testing"):
        return
    for imported in imports(path):
        assert imported != "testing", f"{path.name} imports sipml_core.testing"
        assert FLOOR[imported] <= FLOOR[room], f"{room} imports {imported}, which is above it"


def test_the_core_imports_no_plugin():
    """Bundled plugins are found by entry points alone, as a stranger's are."""
    names = [
        path.name for path in (Path(__file__).resolve().parents[2] / "plugins").glob("*") if path.is_dir()
    ]
    for path in FILES:
        text = path.read_text()
        assert not any(f"import {name}" in text or f"from {name}" in text for name in names), path


def test_only_the_kernel_imports_the_extension():
    for path in FILES:
        if path.name != "kernel.py":
            assert "_engine" not in [word for name in imports_names(path) for word in name.split(".")], path


def imports_names(path: Path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
