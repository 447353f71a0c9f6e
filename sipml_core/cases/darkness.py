"""How much circuit capacity reconfiguration takes away, whoever waits for it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sipml_core.engine import CircuitDriver, CircuitSettings, PhasedCircuitDriver


class DarkCapacity:
    """A driver of circuits that takes note of the capacity which each of its decisions keeps dark.

    GPUs that have something else to do, or some other circuit, do not wait for a dark one; the capacity is
    gone all the same.
    """

    def __init__(self, driver: CircuitDriver) -> None:
        self._driver = driver
        #: Of each decision: when it was, and (span, part of all capacity that is dark for so long).
        self._decisions: list[tuple[float, list[tuple[float, float]]]] = []

    @property
    def interval_us(self) -> float | None:
        """As of the driver. [us]"""
        return self._driver.interval_us

    @property
    def phase_nodes(self) -> Sequence[NDArray[np.int32]]:
        """As of the driver; none: it has no phases."""
        return self._driver.phase_nodes if isinstance(self._driver, PhasedCircuitDriver) else ()

    def begin_phase(self, phase: int) -> None:
        """Pass on to the driver that so many phases have ended."""
        assert isinstance(self._driver, PhasedCircuitDriver)
        self._driver.begin_phase(phase)

    def decide(
        self, now_us: float, sent_bytes: NDArray[np.float64], backlog_bytes: NDArray[np.float64]
    ) -> CircuitSettings | None:
        """Return what the driver decides."""
        settings = self._driver.decide(now_us, sent_bytes, backlog_bytes)
        if settings is not None:
            self._decisions.append((now_us, _dark_parts(settings)))
        return settings

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
    lost_gbps = np.maximum(settings.gbps - settings.kept_gbps, 0.0)
    total_gbps = float(settings.gbps.sum())
    spans = np.unique(settings.dark_us[(lost_gbps > 0) & (settings.dark_us > 0)])
    return [(float(span), float(lost_gbps[settings.dark_us == span].sum()) / total_gbps) for span in spans]
