"""Names of files as values. In an experiment they count from the folder of the file that states them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from sipml_core.errors import ConfigError


class FileText(str):
    """A text read from a file; it knows the folder of that file, from which names of files in it count."""

    folder: Path

    def __new__(cls, text: str, folder: Path) -> FileText:
        value = super().__new__(cls, text)
        value.folder = folder
        return value

    def __getnewargs__(self) -> tuple[str, Path]:  # type: ignore[override]
        return str(self), self.folder


def file_path(default: Any = attrs.NOTHING, *, doc: str, endings: tuple[str, ...] = ("",)) -> Any:
    """Return a field of an `Options` class whose value names a file.

    In an experiment file a relative name counts from that file's folder, in ``--set`` and in tables made in
    Python from the working directory; `Options` get the absolute name. A file that is not there is refused.

    Parameters
    ----------
    default, doc
        As in `sipml_core.fields.option`.
    endings
        Texts that end so, in small or capital letters, name files, and others do not (``"paper"`` may be a
        name of its own kind beside ``"steps.csv"``); left out: every text names a file.
    """
    return attrs.field(
        default=default,
        converter=attrs.Converter(_name, takes_field=True),
        metadata={"doc": doc, "unit": "", "endings": endings},
    )


def _name(value: Any, field: attrs.Attribute[Any]) -> str:
    """The name as plain text; a `Path`, which Python may give, is one."""
    name = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(name, str):
        raise ConfigError(f"{field.name} must be the name of a file in quotes, got {value!r}")
    return str(name)


def names_file(field: attrs.Attribute[Any], value: Any) -> bool:
    """Return whether the value of a field of an `Options` class is the name of a file."""
    return isinstance(value, str) and value.lower().endswith(field.metadata.get("endings", ()))


def absolute_paths(table: Mapping[str, Any], model: type[Any], path: str) -> dict[str, str]:
    """Return the keys of `table` that name files, with the absolute names of those files.

    Raises
    ------
    ConfigError
        Naming the key, as `path` and its own name, and the file, if it is not there.
    """
    found = {}
    for field in attrs.fields(model):
        value = table.get(field.name)
        if isinstance(value, str) and names_file(field, value):
            folder = value.folder if isinstance(value, FileText) else Path()
            file = folder.absolute() / value
            if not _exists(file):
                raise ConfigError(
                    f"{path}.{field.name}: there is no file {file}; relative names count from the folder of "
                    "the experiment file, in --set from the working directory"
                )
            found[field.name] = str(file)
    return found


def _exists(file: Path) -> bool:
    try:
        return file.exists()
    except (OSError, ValueError):  # a name longer than file systems allow, or with a null character
        return False


def sha256_of(content: bytes) -> str:
    """Return the SHA-256 of the content of a file, as text."""
    import hashlib  # only here: it loads OpenSSL, and few experiments name files

    return hashlib.sha256(content).hexdigest()
