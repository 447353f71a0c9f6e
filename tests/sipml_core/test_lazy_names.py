"""A name that a room shows when asked stands in three places, and one that experiments name in a fourth: each
says the same. What is missing is told by name, with the list where it is missing."""

import ast
import importlib
import inspect
from pathlib import Path

import pytest

import sipml_core
from sipml_core import bundled
from sipml_core.plugin import Component, Deferred, Estimator, hookimpl

ROOT = Path(sipml_core.__file__).parents[1]
TABLE = "files_when_asked("
FILES = [
    file
    for folder in (ROOT / "sipml_core", ROOT / "plugins")
    for file in sorted(folder.glob("**/__init__.py"))
    if TABLE in file.read_text(encoding="utf-8")
]


def shown(text, package):
    """Return what a lazy `__init__` gives to others, by list: names, with their file where it is told."""
    found = {"TYPE_CHECKING": {}, "table": {}, "imports": {}, "__all__": []}

    def take(statements, into):
        for node in statements:
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    into[alias.asname or alias.name] = node.module.removeprefix(package).removeprefix(".")

    module = ast.parse(text)
    take(module.body, found["imports"])
    for node in module.body:
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            take(node.body, found["TYPE_CHECKING"])
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__":
            found["__all__"] = ast.literal_eval(node.value)
        if isinstance(node, ast.Assign) and node.targets[0].id == "__getattr__":
            files = literal(node.value.args[1], module)
            found["table"] = {name: file for file, names in files.items() for name in names}
    return found


def literal(node, module):
    """Return a literal, or what a name stands for in a module."""
    if isinstance(node, ast.Name):
        assigned = {}
        for each in module.body:
            if isinstance(each, (ast.Assign, ast.AnnAssign)):
                to = each.target if isinstance(each, ast.AnnAssign) else each.targets[0]
                assigned[to.id] = each.value
        node = assigned[node.id]
    return ast.literal_eval(node)


def missing(found):
    """Yield what stands in one list and not where it has to stand as well, a line each.

    Modules of the package, which an import finds by itself, are in no table.
    """
    table, checked = found["table"], found["TYPE_CHECKING"]
    for name, file in checked.items():
        if file and table.get(name) != file:
            yield f"{name} of {file}: in the imports under TYPE_CHECKING, not in the table"
    for name, file in table.items():
        if checked.get(name) != file:
            yield f"{name} of {file}: in the table, not in the imports under TYPE_CHECKING"
    for name in [*table, *checked]:
        if name not in found["__all__"]:
            yield f"{name}: shown, not in __all__"
    for name in found["__all__"]:
        if name not in {*table, *checked, *found["imports"]}:
            yield f"{name}: in __all__, imported nowhere"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_the_lists_of_a_room_agree(file):
    """And each name is there: a room asked for it gives what has that name."""
    package = ".".join(file.parent.relative_to(ROOT).parts).removeprefix("plugins.")
    found = shown(file.read_text(encoding="utf-8"), package)
    room = importlib.import_module(package)
    defined = {name for name in vars(room) if name in found["__all__"]} - {*found["TYPE_CHECKING"]}
    assert [line for line in missing(found) if line.split(":")[0] not in defined] == []
    assert found["table"]
    for name in found["__all__"]:
        assert getattr(room, name) is not None


def test_what_is_missing_is_told_by_list():
    """Each of four names is missing in another list."""
    text = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from room.one import Alone, Unlisted
    from room.two import Moved
__getattr__ = files_when_asked(__name__, {"one": ("Moved", "Unlisted", "Untyped")})
__all__ = ["Alone", "Moved", "Nowhere", "Untyped"]
"""
    assert list(missing(shown(text, "room"))) == [
        "Alone of one: in the imports under TYPE_CHECKING, not in the table",
        "Moved of two: in the imports under TYPE_CHECKING, not in the table",
        "Moved of one: in the table, not in the imports under TYPE_CHECKING",
        "Untyped of one: in the table, not in the imports under TYPE_CHECKING",
        "Unlisted: shown, not in __all__",
        "Unlisted: shown, not in __all__",
        "Nowhere: in __all__, imported nowhere",
    ]


def offers():
    """Return what the core offers, by hook: pairs of a name and where its class is."""
    hooks = {name: hook for name, hook in vars(bundled).items() if name.startswith("sipml_")}
    return {
        name: [
            (each.name, each.where)
            if isinstance(each, Deferred)
            else (each.name, f"{each.__module__}:{each.__name__}")
            for each in hook()
        ]
        for name, hook in hooks.items()
    }


def test_what_the_core_offers_has_the_name_that_it_is_offered_by():
    """And stands in the room's `__all__`."""
    for hook, found in offers().items():
        assert found, hook
        for name, where in found:
            module, _, kind = where.partition(":")
            room = importlib.import_module(".".join(module.split(".")[:2]))
            assert kind in room.__all__, f"{kind} ({hook}): not in __all__ of {room.__name__}"
            assert getattr(room, kind).name == name, f"{kind} ({hook}): its name is not {name!r}"


def not_offered():
    """Yield classes with a name that a room of the core shows, and `bundled` does not offer."""
    known = {where.partition(":")[2] for found in offers().values() for _, where in found}
    rooms = {where.split(":")[0].split(".")[1] for found in offers().values() for _, where in found}
    for room in sorted(rooms):
        module = importlib.import_module(f"sipml_core.{room}")
        for kind in module.__all__:
            value = getattr(module, kind)
            named = inspect.isclass(value) and issubclass(value, Component) and "name" in vars(value)
            if named and kind not in known:
                yield f"{kind} of {room}: not in sipml_core/bundled"


def test_every_component_of_the_core_is_offered():
    assert list(not_offered()) == []


def test_a_component_that_is_not_offered_is_told(monkeypatch):
    """An estimator that stands in its room's `__all__` alone."""
    from sipml_core import estimators

    class Idle(Estimator):
        name = "idle"
        summary = "nothing"

    monkeypatch.setattr(estimators, "Idle", Idle, raising=False)
    monkeypatch.setattr(estimators, "__all__", [*estimators.__all__, "Idle"])
    assert list(not_offered()) == ["Idle of estimators: not in sipml_core/bundled"]


def test_hooks_of_the_core_are_hooks():
    """What is named like a hook is marked as one, so that it is not left out silently."""
    marked = [name for name in vars(bundled) if name.startswith("sipml_")]
    attribute = hookimpl.project_name + "_impl"
    assert marked
    assert all(getattr(getattr(bundled, name), attribute, None) for name in marked)
