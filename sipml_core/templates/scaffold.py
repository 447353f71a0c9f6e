"""What to start from: an experiment, or a plugin as a package with one topology and its tests."""

from __future__ import annotations

import re
import shlex
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from string import Template

from sipml_core.errors import ConfigError
from sipml_core.plugin import API_VERSION, Registry

#: Characters that no title may have.
_NOT_IN_TITLE = re.compile(r"[^\w .-]")
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")

#: Template -> where it goes in the package.
_FILES = {
    "pyproject.toml.in": "pyproject.toml",
    "module.py.in": "$module.py",
    "test_module.py.in": "tests/test_$module.py",
    "experiment.toml.in": "experiment.toml",
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


def write_plugin(name: str, folder: Path, registry: Registry) -> list[Path]:
    """Write a package that offers the topology `name`, and passes its own tests, to a new folder.

    Raises
    ------
    ConfigError
        The name is not lower-case words joined by hyphens, a topology, a plugin or its module of that name
        is already installed, or the folder exists or cannot be written.
    """
    words = _words(name)
    _refuse_taken(name, registry)
    if find_spec(words["module"]) is not None:
        raise ConfigError(
            f"module {words['module']!r} is already installed; choose another name than {name!r}"
        )
    files = {
        folder / Template(target).substitute(words): Template(_template(source)).substitute(words)
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


def _refuse_taken(name: str, registry: Registry) -> None:
    """Two of one name would stop the program as soon as the new plugin is installed."""
    if name in registry.names("topology"):
        what, source = "topology", registry.entries["topology"][name].source
    elif sources := [source for source in registry.sources if source.plugin == name]:
        what, source = "plugin", sources[0]
    else:
        return
    raise ConfigError(f"{what} {name!r} is already installed, by {source}; choose another name")


def _template(name: str) -> str:
    return (resources.files("sipml_core") / "templates" / name).read_text(encoding="utf-8")


def _words(name: str) -> dict[str, str]:
    """What the templates call things."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"name must be lower-case words joined by hyphens such as fat-tree, got {name!r}")
    return {
        "name": name,
        "module": "sipml_" + name.replace("-", "_"),
        "distribution": f"sipml-{name}",
        "klass": "".join(word.capitalize() for word in name.split("-")),
        "api": str(API_VERSION),
    }
