"""Errors of a plugin's code as one line that names it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from sipml_core.errors import PluginError, SipmlError
from sipml_core.plugin import Component


@contextmanager
def blamed(*components: Component | None) -> Iterator[None]:
    """Turn what the code of a component raises, beside what sipml refuses, into a `PluginError`.

    Whose code it is say the frames: a method of a component outside the core, or a function of its package.
    An error without either is the core's own, and stays as it is.

    Raises
    ------
    PluginError
        One line with the component, its package and the error.
    """
    try:
        yield
    except SipmlError:
        raise
    except (Exception, SystemExit) as error:  # a plugin that ends the program ends only its case
        culprit = _culprit(error.__traceback__, [part for part in components if part])
        if culprit is None:
            raise
        raise PluginError(f"{named(culprit)} failed: {type(error).__name__}: {_line(error)}") from error


def named(component: Component) -> str:
    """Return a component as messages name it, with the package it comes from."""
    base = next(base.__name__ for base in type(component).__mro__ if Component in base.__bases__)
    role = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", base).lower()
    return f"{role} {component.name!r} of {_package(type(component).__module__)!r}"


def _culprit(trace: TracebackType | None, components: list[Component]) -> Component | None:
    """The component whose method is innermost; or the last one from the package of the innermost frame."""
    strangers = [part for part in components if _package(type(part).__module__) != "sipml_core"]
    by_package = {_package(type(part).__module__): part for part in strangers}
    method = module = None
    while trace is not None:
        frame = trace.tb_frame
        method = next((part for part in strangers if part is frame.f_locals.get("self")), method)
        module = by_package.get(_package(frame.f_globals.get("__name__", "")), module)
        trace = trace.tb_next
    return method or module


def _package(module: str) -> str:
    return module.partition(".")[0]


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())
