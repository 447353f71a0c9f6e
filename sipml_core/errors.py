"""Every error that sipml raises on purpose, and the sentence each one speaks."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SipmlError(Exception):
    """Anything sipml refuses. The message is one line: place, value, remedy."""


class ConfigError(SipmlError, ValueError):
    """A value in an experiment, an option table or a command line is not allowed."""


class PluginError(SipmlError):
    """A plugin cannot be loaded, clashes with another, or broke its contract."""


class InfeasibleError(SipmlError):
    """A well-formed experiment that cannot be run: it does not fit, or cannot be placed."""


class StalledError(SipmlError):
    """Nothing can run and tasks remain; the message names some of them and why they wait."""


class LimitError(SipmlError):
    """The wall-clock limit was reached before the work ended."""


class TooSlowError(SipmlError):
    """The job takes longer than the simulated time that it was given."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name closest to a mistyped one, or None if nothing is close."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return close[0] if close else None


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """One line for a name that is not known: the nearest one, then all of them."""
    names = sorted(known)
    close = nearest(name, names)
    hint = f"; did you mean {close!r}?" if close else ";"
    return f"no {what} {name!r}{hint} known: {', '.join(names) or 'none'}"
