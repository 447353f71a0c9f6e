"""Errors of a plugin's code as one line that names it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType

from sipml_core.errors import PluginError, SipmlError
from sipml_core.plugin import Component


@contextmanager
def blamed(*components: Component | None) -> Iterator[None]:
    """Turn what the code of a component raises, beside what sipml refuses, into a `PluginError`.

    Whose code it is says the innermost frame of a module from a component's package outside the core; an
    error without one is the core's own, and stays as it is.

    Raises
    ------
    PluginError
        One line with the component, its package and the error.
    """
    try:
        yield
    except SipmlError:
        raise
    except Exception as error:
        culprit = _culprit(error.__traceback__, [part for part in components if part])
        if culprit is None:
            raise
        raise PluginError(f"{named(culprit)} failed: {type(error).__name__}: {_line(error)}") from error


def named(component: Component) -> str:
    """Return a component as messages name it, with the package it comes from."""
    role = next(base.__name__.lower() for base in type(component).__mro__ if Component in base.__bases__)
    return f"{role} {component.name!r} of {_package(type(component).__module__)!r}"


def _culprit(trace: TracebackType | None, components: Iterable[Component]) -> Component | None:
    by_package = {_package(type(part).__module__): part for part in components}
    by_package.pop("sipml_core", None)
    found = None
    while trace is not None:
        found = by_package.get(_package(trace.tb_frame.f_globals.get("__name__", "")), found)
        trace = trace.tb_next
    return found


def _package(module: str) -> str:
    return module.partition(".")[0]


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())
