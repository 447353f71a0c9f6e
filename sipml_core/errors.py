"""Every error that sipml raises on purpose, and the sentence each one speaks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

#: Letters of a value that a message shows at most.
SHOWN_LETTERS = 80


class SipmlError(Exception):
    """Anything sipml refuses. The message is one line: place, value, remedy."""


class ConfigError(SipmlError, ValueError):
    """A value in an experiment, an option table or a command line is not allowed."""


class PluginError(SipmlError):
    """A plugin cannot be loaded, clashes with another, or broke its contract."""


class InfeasibleError(SipmlError):
    """A well-formed experiment that cannot be run: it does not fit, or cannot be placed."""


class TooManyStagesError(ConfigError, InfeasibleError):
    """A plan has more stages than its model can be cut into: refused by `run`, no candidate of a search."""


class StalledError(SipmlError):
    """Nothing can run and tasks remain; the message names some of them and why they wait."""


class LimitError(SipmlError):
    """The wall-clock limit was reached before the work ended."""


class TooSlowError(SipmlError):
    """The job takes longer than the simulated time that it was given."""


def shown(value: Any) -> str:
    """Return a value as messages quote it: as Python writes it, without the middle if it is long.

    >>> shown("fast"), shown(1.5)
    ("'fast'", '1.5')
    >>> len(shown("x" * 3000))
    80
    """
    try:
        return brief(repr(value))
    except ValueError:  # more digits than Python turns into text
        digits = 1 + int(abs(value).bit_length() * 0.30103) if isinstance(value, int) else "many"
        return f"an integer of about {digits} digits"
    except RecursionError:
        return "a value nested too deeply"


def brief(text: str) -> str:
    """Return a text in one line of at most `SHOWN_LETTERS` letters: its middle is left out if need be."""
    line = text if text.isprintable() else repr(text)[1:-1]
    half = (SHOWN_LETTERS - 5) // 2
    return line if len(line) <= SHOWN_LETTERS else f"{line[: half + 1]} ... {line[-half:]}"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name closest to a mistyped one, or None if nothing is close."""
    import difflib  # only here: most commands never need it

    close = difflib.get_close_matches(name[:SHOWN_LETTERS], list(known), n=1, cutoff=0.5)
    return close[0] if close else None


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """One line for a name that is not known: the nearest one, then all of them."""
    names = sorted(known)
    close = nearest(name, names)
    hint = f"; did you mean {close!r}?" if close else ";"
    return f"no {what} {shown(name)}{hint} known: {', '.join(names) or 'none'}"
