"""Which part of a run details are wanted of: some replicas, some GPUs, a time window."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError
from sipml_core.fields import format_us, frozen, parse_us
from sipml_core.model import CaseRecord


@frozen(kw_only=True)
class Selection:
    """A part of a run; all of it where nothing is chosen."""

    #: Sorted numbers; None: all.
    replicas: tuple[int, ...] | None = None
    gpus: tuple[int, ...] | None = None
    #: From, until. [us]
    window_us: tuple[float, float] | None = None

    def check_numbers(self, gpus: int, replicas: int | None = None) -> None:
        """Refuse GPUs, and replicas where their number is known, that are not there.

        >>> Selection(gpus=(3, 64)).check_numbers(64)
        Traceback (most recent call last):
        ...
        sipml_core.errors.ConfigError: --gpus must be from 0 to 63, got 64; nearest: 63
        """
        for name, chosen, count in (("gpus", self.gpus, gpus), ("replicas", self.replicas, replicas)):
            if chosen and chosen[0] < 0:
                raise ConfigError(f"--{name} must be 0 or more, got {chosen[0]}; nearest: 0")
            if chosen and count is not None and chosen[-1] >= count:
                raise ConfigError(
                    f"--{name} must be from 0 to {count - 1}, got {chosen[-1]}; nearest: {count - 1}"
                )

    def check(self, record: CaseRecord) -> None:
        """Refuse what is not in a run."""
        self.check_numbers(record.gpus, int(record.replica.max()) + 1)
        end_us = record.timeline.total_us
        if self.window_us and not self.window_us[0] < self.window_us[1]:
            start, end = map(format_us, self.window_us)
            raise ConfigError(f"--window must begin before it ends, got {start}..{end}")
        if self.window_us and self.window_us[0] >= end_us:
            raise ConfigError(
                f"--window must begin before the run of {record.workload} on {record.topology} ends, at "
                f"{format_us(end_us)}, got {format_us(self.window_us[0])}"
            )

    def gpu_mask(self, record: CaseRecord) -> NDArray[np.bool_]:
        """Return which GPUs are wanted: those named, of the replicas named. [gpus]"""
        wanted = np.ones(record.gpus, dtype=np.bool_)
        if self.gpus is not None:
            wanted &= np.isin(np.arange(record.gpus), self.gpus)
        if self.replicas is not None:
            wanted &= np.isin(record.replica, self.replicas)
        return wanted

    def in_window(self, since_us: NDArray[np.float64], until_us: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which spans have a part in the window."""
        if self.window_us is None:
            return np.ones(len(since_us), dtype=np.bool_)
        from_us, to_us = self.window_us
        return (since_us <= to_us) & (until_us >= from_us)


def parse_numbers(text: str, name: str) -> tuple[int, ...]:
    """Return numbers in order; `ConfigError` says what is no number.

    >>> parse_numbers("0-2,7", "gpus")
    (0, 1, 2, 7)
    """
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()) or part.strip().endswith("-"):
            raise ConfigError(f'--{name} must be numbers such as "0-3,7", got {text!r}')
        low, high = int(first), int(last or first)
        if high < low:
            raise ConfigError(f"--{name} must go up, got {part.strip()!r}; nearest: {high}-{low}")
        if high - low > 10**6:
            raise ConfigError(f"--{name} must name at most a million, got {part.strip()!r}")
        found.update(range(low, high + 1))
    return tuple(sorted(found))


def parse_window(text: str) -> tuple[float, float]:
    """Return the ends of a time window. [us]

    >>> parse_window("1 ms..2.5 ms"), parse_window("..40us")
    ((1000.0, 2500.0), (0.0, 40.0))
    """
    first, dots, last = text.partition("..")
    if not dots:
        raise ConfigError(f'--window must be two times such as "1 ms..2 ms", got {text!r}')
    try:
        since_us = parse_us(first.strip()) if first.strip() else 0.0
        until_us = parse_us(last.strip()) if last.strip() else float("inf")
    except ConfigError as error:
        raise ConfigError(f"--window {error}") from None
    if not 0 <= since_us < until_us:
        raise ConfigError(f"--window must begin before it ends, got {text!r}")
    return since_us, until_us
