"""How far a piece of work is."""

from __future__ import annotations

from collections.abc import Callable

from sipml_core.fields import frozen


@frozen(kw_only=True)
class Progress:
    """Tells one watcher how far a piece of work is, as a fraction of the whole that the piece is part of.

    >>> told = []
    >>> whole = Progress(watch=lambda label, fraction: told.append((label, fraction)), label="run")
    >>> whole.part(1, of=4).at(0.5)
    >>> told
    [('run', 0.375)]
    """

    #: Called with what is worked on and the fraction of the whole that is done.
    watch: Callable[[str, float], None]
    label: str = ""
    #: Where this piece begins, and how much of the whole it is.
    begin: float = 0.0
    share: float = 1.0

    def at(self, fraction: float) -> None:
        """Tell that this fraction of the piece is done."""
        self.watch(self.label, self.begin + self.share * fraction)

    def part(self, number: int, *, of: int) -> Progress:
        """Return the progress of the piece's part `number`, from 0, of `of` equal ones."""
        share = self.share / of
        return Progress(watch=self.watch, label=self.label, begin=self.begin + number * share, share=share)

    def named(self, label: str) -> Progress:
        """Return the progress of the same piece under another label."""
        return Progress(watch=self.watch, label=label, begin=self.begin, share=self.share)


def _nobody(label: str, fraction: float) -> None:
    """Watch nothing."""


#: For work that nobody watches.
SILENT = Progress(watch=_nobody)
