"""The layout of the core: data flows one way, and each room shows one face to the others."""

import ast
import configparser
import importlib
from pathlib import Path

import pytest

import sipml_core

ROOT = Path(sipml_core.__file__).parent
#: The repository, whatever is installed.
SOURCES = Path(__file__).parents[2]

#: What a room may import from other rooms; rooms stand in the order in which data passes through them.
BASE = {"errors", "fields", "model"}
CONTRACT = {*BASE, "plugin"}
STEPS = {
    *CONTRACT, "communication", "experiment", "partition", "placement", "lowering", "engine", "scheduling",
}  # fmt: skip
SEARCHED = {*STEPS, "details", "cases", "store", "executing"}
MAY_IMPORT = {
    "errors": set(),
    "lazy": set(),
    "fields": {"errors"},
    "model": {"errors", "fields"},
    "plugin": BASE,
    "allocation": CONTRACT,
    "collectives": CONTRACT,
    "communication": CONTRACT,
    "experiment": {*CONTRACT, "collectives", "communication"},
    "workloads": CONTRACT,
    "gpus": CONTRACT,
    "partition": CONTRACT,
    "placement": {*CONTRACT, "partition"},
    "lowering": {*CONTRACT, "partition", "placement"},
    "engine": BASE,
    "details": BASE,
    "estimators": {*CONTRACT, "engine"},
    "scheduling": {*CONTRACT, "engine"},
    "cases": {*STEPS, "details"},
    "store": {*STEPS, "cases"},
    "executing": CONTRACT,
    "searching": SEARCHED,
    "sharing": {*STEPS, "cases"},
    "sweeping": {*SEARCHED, "searching"},
    "reproduce": {*SEARCHED, "searching", "sweeping"},
    "validating": {*STEPS, "cases", "executing", "store"},
    "calibrating": {*STEPS, "cases"},
    "report": {*SEARCHED, "searching", "sharing", "sweeping", "reproduce", "validating"},
    "templates": CONTRACT,
    "bundled": {
        *CONTRACT,
        "workloads",
        "gpus",
        "placement",
        "estimators",
        "collectives",
        "communication",
        "allocation",
    },
    "testing": {*STEPS, "workloads", "gpus", "cases"},
    "cli": {
        *SEARCHED,
        "searching",
        "sharing",
        "sweeping",
        "reproduce",
        "validating",
        "calibrating",
        "report",
        "templates",
    },
    "__main__": {"cli"},
    "frontdoor": {*SEARCHED, "searching", "sweeping", "report"},
    "__init__": {"frontdoor"},
}

FILES = sorted(path for path in ROOT.rglob("*.py") if path.name != "ffi_build.py")
FACES = [path for path in FILES if path.name == "__init__.py" and path.parent != ROOT]


def module_of(path):
    """Parts of the module's name below sipml_core: ("model", "fabric"); a package's own are ("model",)."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts


def imported(path):
    """(module parts below sipml_core, names taken from it) of each import at run time."""
    tree = ast.parse(path.read_text())
    only_for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in only_for_types:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "sipml_core":
            yield tuple(node.module.split(".")[1:]), [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("sipml_core."):
                    yield tuple(alias.name.split(".")[1:]), []


def within(path):
    """Modules of the same room that a file imports."""
    room = module_of(path)[0]
    for parts, names in imported(path):
        if parts == (room,):
            yield from ((room, name) for name in names)
        elif parts[:1] == (room,):
            yield parts


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_room_imports_only_what_it_may(path):
    """What comes later on the road is imported by nothing that comes earlier."""
    room = module_of(path)[0]
    for parts, _ in imported(path):
        if parts and parts[0] not in (room, "lazy"):
            assert parts[0] in MAY_IMPORT[room], f"{room} imports {'.'.join(parts)}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_rooms_meet_by_their_faces(path):
    """From another room a file takes only what that room's `__init__` exports."""
    room = module_of(path)[0]
    for parts, names in imported(path):
        if parts and parts[0] not in (room, "errors", "lazy", "bundled", "cli"):
            assert len(parts) == 1, f"import {', '.join(names)} from sipml_core.{parts[0]}"
            missing = set(names) - set(__import__(f"sipml_core.{parts[0]}", fromlist=["_"]).__all__)
            assert not missing, f"sipml_core.{parts[0]} does not export {missing}"


@pytest.mark.parametrize("room", sorted({module_of(path)[0] for path in FACES}))
def test_there_are_no_circles_between_files(room):
    """Inside a room, too, a file imports none that needs it: removing files that need no other ends."""
    files = {module_of(path): set(within(path)) for path in FILES if module_of(path)[0] == room}
    known = {module: needs & (set(files) - {(room,)}) for module, needs in files.items() if len(module) > 1}
    while free := [module for module, needs in known.items() if not needs & set(known)]:
        for module in free:
            del known[module]
    assert not known, f"in circles, or needing one: {sorted('.'.join(module) for module in known)}"


@pytest.mark.parametrize("face", FACES, ids=lambda path: path.parent.name)
def test_a_room_has_all_that_it_exports(face):
    """Also where a face imports its files only when something of them is asked for."""
    room = importlib.import_module(f"sipml_core.{face.parent.name}")
    assert not [name for name in getattr(room, "__all__", []) if not hasattr(room, name)]


@pytest.mark.parametrize("face", FACES, ids=lambda path: path.parent.name)
def test_a_room_says_what_comes_in_and_goes_out(face):
    text = ast.get_docstring(ast.parse(face.read_text()))
    if face.parent.name != "testing":
        assert "In: " in text
        assert "Out: " in text


@pytest.mark.parametrize("room", [room for room in MAY_IMPORT if (ROOT / room / "__init__.py").is_file()])
def test_a_room_gives_what_it_exports(room):
    """Also where its files are imported only when asked for; nothing else is asked of them."""
    package = importlib.import_module(f"sipml_core.{room}")
    exported = getattr(package, "__all__", ())
    assert [name for name in exported if not hasattr(package, name)] == []
    with pytest.raises(AttributeError, match="has no attribute 'nothing_like_it'"):
        _ = package.nothing_like_it


def test_no_two_files_share_a_name():
    """So that a file is found by its name alone."""
    names = [path.name for path in FILES if path.name not in ("__init__.py", "__main__.py")]
    assert sorted(names) == sorted(set(names))


def test_few_modules_lie_outside_the_rooms():
    assert len(list(ROOT.glob("*.py"))) <= 5


def test_the_core_imports_no_plugin():
    """Bundled plugins are found by entry points alone, as a stranger's are."""
    folder = Path(__file__).resolve().parents[2] / "plugins"
    plugins = {path.name for path in folder.glob("*") if path.is_dir()}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in plugins, path
            elif isinstance(node, ast.Import):
                assert not {alias.name.split(".")[0] for alias in node.names} & plugins, path


def test_only_the_kernel_imports_the_extension():
    for path in FILES:
        if path.name != "kernel.py":
            for parts, names in imported(path):
                assert "_engine" not in (*parts, *names), path


def test_every_room_is_installed():
    """`packages` of setup.cfg names all folders with Python in them: an editable install would not notice."""
    config = configparser.ConfigParser()
    config.read(SOURCES / "setup.cfg")
    packages = set(config["options"]["packages"].split())
    folders = {path.parent for top in ("sipml_core", "hwsim") for path in (SOURCES / top).rglob("*.py")}
    folders |= {path.parent for path in (SOURCES / "plugins").rglob("*.py")}
    found = {".".join(path.relative_to(SOURCES).parts).removeprefix("plugins.") for path in folders}
    assert found == packages
