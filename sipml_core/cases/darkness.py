"""How much circuit capacity reconfiguration takes away, whoever waits for it."""

from __future__ import annotations

import numpy as np

from sipml_core.cases.watcheddriver import WatchedDriver
from sipml_core.engine import CircuitDriver, CircuitSettings
from sipml_core.model import sorted_unique


class DarkCapacity(WatchedDriver):
    """A driver of circuits that takes note of the capacity which each of its decisions keeps dark.

    GPUs that have something else to do, or some other circuit, do not wait for a dark one; the capacity is
    gone all the same.
    """

    def __init__(self, driver: CircuitDriver) -> None:
        super().__init__(driver)
        #: Of each decision: when it was, and (span, part of all capacity that is dark for so long).
        self._decisions: list[tuple[float, list[tuple[float, float]]]] = []
        self._last: CircuitSettings | None = None

    def decided(self, now_us: float, settings: CircuitSettings) -> None:
        """See `WatchedDriver.decided`."""
        parts = self._decisions[-1][1] if settings is self._last else _dark_parts(settings)
        self._last = settings
        self._decisions.append((now_us, parts))

    def between(self, since_us: float, until_us: float) -> float:
        """Return the time that all circuits would have to be dark to lose as much in this time. [us]"""
        lost_us = 0.0
        later_us = [now_us for now_us, _ in self._decisions[1:]]
        for (now_us, parts), next_us in zip(self._decisions, [*later_us, until_us], strict=False):
            for span_us, part in parts:
                end_us = min(now_us + span_us, next_us, until_us)
                lost_us += part * max(0.0, end_us - max(now_us, since_us))
        return lost_us


def _dark_parts(settings: CircuitSettings) -> list[tuple[float, float]]:
    """Spans [us], and for each the part of all capacity that is dark for so long.

    >>> _dark_parts(CircuitSettings(gbps=[100, 300], kept_gbps=[100, 100], dark_us=[25, 25]))
    [(25.0, 0.5)]
    """
    # What circuits lose that lose anything, and for how long.
    dark = np.flatnonzero(settings.gbps > settings.kept_gbps)
    lost_gbps, dark_us = settings.gbps[dark] - settings.kept_gbps[dark], settings.dark_us[dark]
    total_gbps = float(settings.gbps.sum())
    if not len(dark):
        return []
    if dark_us[0] > 0 and (dark_us == dark_us[0]).all():  # as a rule
        return [(float(dark_us[0]), float(lost_gbps.sum()) / total_gbps)]
    return [
        (span, float(lost_gbps[dark_us == span].sum()) / total_gbps)
        for span in sorted_unique(dark_us[dark_us > 0]).tolist()
    ]
