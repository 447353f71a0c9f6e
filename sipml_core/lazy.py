"""Imports of what a command needs, when it needs it: a command uses few files of a room."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def files_when_asked(package: str, gives: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package (PEP 562) that imports a file when one of its names is asked for.

    Parameters
    ----------
    package
        Its ``__name__``.
    gives
        What each of its files gives to others. Type checkers read the same from imports under
        ``TYPE_CHECKING``, and ``__all__``.
    """
    file_of = {name: file for file, names in gives.items() for name in names}

    def get(name: str) -> Any:
        if name not in file_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{file_of[name]}"), name)

    return get
