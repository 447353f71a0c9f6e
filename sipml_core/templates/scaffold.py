"""What to start from: an experiment, or a plugin of any kind as a package with its tests."""

from __future__ import annotations

import re
import shlex
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from string import Template

from sipml_core.errors import ConfigError, unknown
from sipml_core.plugin import API_VERSION, Registry

#: Characters that no title may have.
_NOT_IN_TITLE = re.compile(r"[^\w .-]")
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")

#: What can be brought: kind -> role, what it is called, packages it needs beside sipml.
KINDS = {
    "topology": ("topology", "interconnect", ("networkx",)),
    "circuits": ("topology", "circuit network", ("numpy",)),
    "scheduler": ("scheduler", "circuit scheduler", ("numpy",)),
    "placer": ("placer", "placement algorithm", ("numpy",)),
    "gpu": ("gpu", "GPU model", ()),
    "workload": ("workload", "workload", ()),
    "estimator": ("estimator", "traffic estimator", ()),
    "exchange": ("exchange", "exchange inside groups", ("numpy",)),
    "all-reduce": ("all_reduce", "all-reduce over replicas", ()),
    "communication": ("communication", "communication library", ()),
}

#: Template -> where it goes in the package; those of one kind lie in a folder of its name.
_FILES = {
    "pyproject.toml.in": "pyproject.toml",
    "$kind/module.py.in": "$module.py",
    "$kind/test_module.py.in": "tests/test_$module.py",
    "$kind/experiment.toml.in": "experiment.toml",
    "README.md.in": "README.md",
}


def write_experiment(file: Path) -> None:
    """Write the quickstart, which runs as it is, to a new file; its title is the file's name.

    Raises `ConfigError` if the file exists or cannot be written.
    """
    title = _NOT_IN_TITLE.sub("-", file.stem).strip(". ") or "experiment"
    template = Template(_template("quickstart.toml.in"))
    text = template.substitute(file=shlex.quote(str(file)), title=title)
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError:
        raise ConfigError(f"{file} already exists; choose another name") from None
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}") from None


def write_plugin(name: str, folder: Path, registry: Registry, kind: str = "topology") -> list[Path]:
    """Write a package that offers something of that name, and passes its own tests, to a new folder.

    Parameters
    ----------
    kind
        What it offers: a key of `KINDS`.

    Raises
    ------
    ConfigError
        The kind is unknown, the name is not lower-case words joined by hyphens, something of its role, a
        plugin or its module of that name is already installed, or the folder exists or cannot be written.
    """
    if kind not in KINDS:
        raise ConfigError(unknown("kind of plugin", kind, KINDS))
    words = _words(name, kind)
    _refuse_taken(name, KINDS[kind][0], registry)
    if find_spec(words["module"]) is not None:
        raise ConfigError(
            f"module {words['module']!r} is already installed; choose another name than {name!r}"
        )
    files = {
        folder / _filled(target, words): _filled(_template(_filled(source, words)), words)
        for source, target in _FILES.items()
    }
    try:
        folder.mkdir(parents=True)
        for path, text in files.items():
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except FileExistsError:
        raise ConfigError(f"{folder} already exists; choose another folder") from None
    except OSError as error:
        raise ConfigError(f"cannot write {folder}: {error.strerror}") from None
    return list(files)


def _refuse_taken(name: str, role: str, registry: Registry) -> None:
    """Two of one name would stop the program as soon as the new plugin is installed."""
    if name in registry.names(role):
        what, source = role, registry.entries[role][name].source
    elif sources := [source for source in registry.sources if source.plugin == name]:
        what, source = "plugin", sources[0]
    else:
        return
    raise ConfigError(f"{what} {name!r} is already installed, by {source}; choose another name")


def _filled(text: str, words: dict[str, str]) -> str:
    return Template(text).substitute(words)


def _template(name: str) -> str:
    return (resources.files("sipml_core").joinpath("templates", *name.split("/"))).read_text(encoding="utf-8")


def _words(name: str, kind: str) -> dict[str, str]:
    """What the templates call things."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"name must be lower-case words joined by hyphens such as fat-tree, got {name!r}")
    _, what, packages = KINDS[kind]
    return {
        "kind": kind,
        "what": what,
        "dependencies": ", ".join(f'"{package}"' for package in ("sipml", "attrs", *packages)),
        "name": name,
        "module": "sipml_" + name.replace("-", "_"),
        "distribution": f"sipml-{name}",
        "klass": "".join(word.capitalize() for word in name.split("-")),
        "api": str(API_VERSION),
    }
