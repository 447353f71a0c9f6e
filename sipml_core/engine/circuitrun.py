"""Circuits during a run: when the driver is asked, and what its answer does to capacities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.engine.session import Session
from sipml_core.engine.stall import stalled
from sipml_core.errors import ConfigError, PluginError
from sipml_core.fields import float64_vector, frozen
from sipml_core.model import finite_not_negative, sorted_unique

#: Decisions in a row that may leave a backlog and move nothing, before the run counts as stalled.
_FRUITLESS = 10_000
#: More circuits than are looked at sooner than those of them that change.
_MANY = 1024


@frozen(kw_only=True, eq=False)
class CircuitSettings:
    """Capacities of all circuit links of the `Network`, in its order. [circuits]"""

    #: Once everything has settled. [Gbps]
    gbps: NDArray[np.float64] = attrs.field(converter=float64_vector)
    #: From the decision until then. [Gbps]
    kept_gbps: NDArray[np.float64] = attrs.field(converter=float64_vector)
    #: How long that lasts. [us]
    dark_us: NDArray[np.float64] = attrs.field(converter=float64_vector)

    @classmethod
    def at_once(cls, gbps: NDArray[np.float64]) -> CircuitSettings:
        """Return settings that nothing is dark for: circuits have these capacities from the decision on."""
        gbps = float64_vector(gbps)
        return cls(gbps=gbps, kept_gbps=gbps, dark_us=np.zeros(len(gbps)))

    def check_length(self, circuits: int) -> None:
        """Refuse settings that are not those of so many links."""
        for name in ("gbps", "kept_gbps", "dark_us"):
            values = getattr(self, name)
            if len(values) != circuits:
                raise PluginError(
                    f"the circuit driver must set {name} of {circuits} circuits, got {len(values)}"
                )

    def check_values(self, circuits: NDArray[np.intp] | None = None) -> None:
        """Refuse settings of some circuits, or of all, that are no capacities or times."""
        for name in ("gbps", "kept_gbps", "dark_us"):
            values = getattr(self, name)
            if circuits is not None:
                values = values[circuits]
            if finite_not_negative(values):
                continue
            fine = (values >= 0) & (values < np.inf)
            if not fine.all():
                bad = int(np.argmin(fine))
                raise PluginError(
                    f"the circuit driver's {name} must be finite and not negative, "
                    f"got {values[bad]} for circuit {bad if circuits is None else circuits[bad]}"
                )

    @property
    def not_kept(self) -> NDArray[np.intp]:
        """Return the circuits that at first have another capacity than once they have settled."""
        if self.gbps is self.kept_gbps:
            return np.zeros(0, np.intp)
        return np.flatnonzero(self.gbps != self.kept_gbps)


class CircuitDriver(Protocol):
    """Decides circuits while a job runs.

    It is asked at time 0, then every `interval_us` (None: never again) while tasks remain, except
    when nothing was sent over a circuit since the last decision and nothing waits for one.
    """

    @property
    def interval_us(self) -> float | None: ...

    def decide(
        self, now_us: float, sent_bytes: NDArray[np.float64], backlog_bytes: NDArray[np.float64]
    ) -> CircuitSettings | None:
        """New settings, or None to keep all as it is, pending changes included.

        Parameters
        ----------
        sent_bytes
            Carried by each circuit link since the last decision. [circuits]
        backlog_bytes
            Queued or unfinished on the pairs that cross each circuit link. [circuits]
        """


@runtime_checkable
class PhasedCircuitDriver(CircuitDriver, Protocol):
    """A driver that is asked at the ends of phases as well, whether or not anything was sent or waits.

    While circuits still change it is asked as soon as they have settled, at the end of a phase as after an
    interval.
    """

    @property
    def phase_nodes(self) -> Sequence[NDArray[np.int32]]:
        """Return the nodes of each phase, which ends when the last of them has and the phase before has."""

    def begin_phase(self, phase: int) -> None:
        """Take note that so many phases have ended, before `decide` is asked."""


@attrs.define
class _PendingCapacity:
    """Circuits that get their settled capacity at one moment."""

    at_us: float
    #: Numbers among the circuits.
    circuits: NDArray[np.intp]
    gbps: NDArray[np.float64]


def _by_span(
    circuits: NDArray[np.intp], dark_us: NDArray[np.float64]
) -> list[tuple[float, NDArray[np.intp]]]:
    """Return each time for which circuits are dark, the shortest first, and the circuits that are. [us]

    >>> [(us, circuits.tolist()) for us, circuits in _by_span(np.array([3, 4, 8]), np.array([9.0, 5.0, 9.0]))]
    [(5.0, [4]), (9.0, [3, 8])]
    """
    if not len(circuits):
        return []
    if (dark_us == dark_us[0]).all():  # as a rule
        return [(float(dark_us[0]), circuits)]
    return [(span_us, circuits[dark_us == span_us]) for span_us in sorted_unique(dark_us).tolist()]


class Circuits:
    """The circuit links of one run, and whoever decides on them (None: they stay at 0)."""

    def __init__(self, session: Session, driver: CircuitDriver | None) -> None:
        self._session = session
        self._first = session.network.first_circuit
        self._driver = driver if self._first < len(session.network.link_gbps) else None
        interval_us = self._driver.interval_us if self._driver else None
        if interval_us is not None and not (math.isfinite(interval_us) and interval_us > 0):
            raise ConfigError(f"interval_us must be positive, got {interval_us!r}")
        self._interval_us = interval_us
        self._phases: Sequence[NDArray[np.int32]] = ()
        if isinstance(self._driver, PhasedCircuitDriver):
            self._phases = self._driver.phase_nodes
        #: Phases that have ended, and when the driver is asked because of one.
        self._phase = 0
        self._ask_at_us = math.inf
        self._await_phase()
        self._instants = 0
        self._decide_at_us = 0.0 if self._driver else math.inf
        self._pending: list[_PendingCapacity] = []
        #: The settings in force, where nothing of them is dark at first: the same again change nothing.
        self._settled: CircuitSettings | None = None
        #: Bytes that each link had carried at the last decision. [links]
        self._carried_bytes = np.zeros(len(session.network.link_gbps))
        #: Circuits.
        self._count = len(session.network.link_gbps) - self._first
        self._fruitless = 0
        self._events_before = -1
        self.decisions = 0
        self.capacity_gbps = np.array(session.network.link_gbps)

    @property
    def next_us(self) -> float:
        """When something is due; infinite if nothing is."""
        pending_us = self._pending[0].at_us if self._pending else math.inf
        return min(self._decide_at_us, self._ask_at_us, pending_us)

    def end_phase(self) -> None:
        """Take note that the session came back because a phase has ended: the driver is asked now."""
        assert isinstance(self._driver, PhasedCircuitDriver)
        self._phase += 1
        self._driver.begin_phase(self._phase)
        self._ask_at_us = self._session.now_us
        self._await_phase()

    def _await_phase(self) -> None:
        if self._phase < len(self._phases):
            self._session.stop_after(self._phases[self._phase])

    def act(self) -> None:
        """Do what is due now.

        Raises
        ------
        StalledError
            Nothing moves and no decision will change that.
        """
        now_us = self._session.now_us
        while self._pending and self._pending[0].at_us <= now_us:
            pending = self._pending.pop(0)
            self._set(pending.circuits, pending.gbps)
        due = self._decide_at_us <= now_us
        if (due or self._ask_at_us <= now_us) and self._phases and self._pending:
            self._ask_at_us = self._pending[-1].at_us
        elif due or self._ask_at_us <= now_us:
            self._decide(asked=self._ask_at_us <= now_us)
            self._ask_at_us = math.inf
        if due:
            self._instants += 1
            self._decide_at_us = self._instants * self._interval_us if self._interval_us else math.inf

    def _decide(self, asked: bool) -> None:
        session = self._session
        traffic = session.traffic_since(self._carried_bytes)
        first, sent = self._instants == 0, traffic.sent
        busy = sent or traffic.waits
        if not first and not busy and not session.moving:
            raise stalled(session, self.capacity_gbps)
        if (first or busy or asked) and self._driver:
            self._carried_bytes = traffic.carried_bytes
            self.decisions += 1
            sent_bytes, backlog_bytes = (
                traffic.sent_bytes[self._first :],
                traffic.backlog_bytes[self._first :],
            )
            self._apply(self._driver.decide(session.now_us, sent_bytes, backlog_bytes))
        self._count_fruitless(sent)

    def _apply(self, settings: CircuitSettings | None) -> None:
        if settings is None or (settings is self._settled and not self._pending):
            return
        settings.check_length(self._count)
        later = settings.not_kept
        # What stays as it is has been checked: there may be very many circuits, and few that change.
        many = self._count > _MANY
        settings.check_values(later if many else None)
        # Circuits that reach their settled capacity later, and how much later.
        later = later[settings.dark_us[later] > 0]
        dark_us = settings.dark_us[later]
        gbps = settings.gbps
        self._settled = None if len(later) else settings
        if len(later):
            gbps = gbps.copy()
            gbps[later] = settings.kept_gbps[later]
        changed = np.flatnonzero(gbps != self.capacity_gbps[self._first :])
        if many:
            settings.check_values(changed)
        self._set(changed, gbps[changed])
        now_us = self._session.now_us
        self._pending = [
            _PendingCapacity(now_us + span_us, same, settings.gbps[same])
            for span_us, same in _by_span(later, dark_us)
        ]

    def _set(self, circuits: NDArray[np.intp], gbps: NDArray[np.float64]) -> None:
        links = (circuits + self._first).astype(np.int32)
        self.capacity_gbps[links] = gbps
        self._session.set_capacity(links, gbps)

    def _count_fruitless(self, sent: bool) -> None:
        session = self._session
        events = session.events
        stuck = not sent and events == self._events_before and not session.moving
        self._fruitless = self._fruitless + 1 if stuck else 0
        self._events_before = events
        if self._fruitless >= _FRUITLESS:
            raise stalled(session, self.capacity_gbps)
