"""Estimators that need no more than what the engine has just seen."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sipml_core.model import Network, TaskGraph, TreatsAlike
from sipml_core.plugin import DemandForecast, Estimator

Bytes = NDArray[np.float64]


class Window(TreatsAlike, Estimator):
    """What was sent in the last interval will be sent again (the paper, section 3.3), and the backlog."""

    name = "window"
    summary = "what was sent in the last interval, as in the paper, and what waits"

    def start(self, network: Network, tasks: TaskGraph) -> DemandForecast:
        """See `Estimator.start`."""
        return _window


class Backlog(TreatsAlike, Estimator):
    """Only what is ready to be sent now."""

    name = "backlog"
    summary = "only what is ready and waits now"

    def start(self, network: Network, tasks: TaskGraph) -> DemandForecast:
        """See `Estimator.start`."""
        return _backlog


def _window(*, now_us: float, interval_us: float, sent_bytes: Bytes, backlog_bytes: Bytes) -> Bytes:
    return sent_bytes + backlog_bytes


def _backlog(*, now_us: float, interval_us: float, sent_bytes: Bytes, backlog_bytes: Bytes) -> Bytes:
    return backlog_bytes
