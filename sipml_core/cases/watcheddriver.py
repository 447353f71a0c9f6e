"""A driver of circuits with an observer of what it decides."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sipml_core.engine import CircuitDriver, CircuitSettings, PhasedCircuitDriver


class WatchedDriver:
    """Passes on what a driver is asked and decides; subclasses note the decisions in `decided`."""

    def __init__(self, driver: CircuitDriver) -> None:
        self._driver = driver

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
            self.decided(now_us, settings)
        return settings

    @abstractmethod
    def decided(self, now_us: float, settings: CircuitSettings) -> None:
        """Note new settings, from `now_us` on."""
