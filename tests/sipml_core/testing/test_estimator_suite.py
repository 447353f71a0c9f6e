"""The suite of estimators finds each law broken, and passes one that keeps them all."""

import numpy as np
import pytest

from sipml_core.plugin.interfaces import Estimator
from sipml_core.testing import EstimatorConformance, LawBroken


class Sound(Estimator):
    """What waits; the faulty ones below change one thing each."""

    name = "sound"
    summary = "what waits"

    def start(self, network, tasks):
        def forecast(*, now_us, interval_us, sent_bytes, backlog_bytes):
            return self.expect(sent_bytes, backlog_bytes)

        return forecast

    def expect(self, sent, waiting):
        return waiting


class OnlySent(Sound):
    """A circuit that never carried is never asked for."""

    def expect(self, sent, waiting):
        return sent


class Negative(Sound):
    def expect(self, sent, waiting):
        return waiting - 1.0


class Endless(Sound):
    def expect(self, sent, waiting):
        return waiting + np.inf


class OneForAll(Sound):
    def expect(self, sent, waiting):
        return waiting.sum()


class Remembers(Sound):
    """The second run starts with what the first has seen."""

    total = 0.0

    def expect(self, sent, waiting):
        self.total = self.total + waiting
        return self.total


class Writes(Sound):
    def expect(self, sent, waiting):
        waiting += sent
        return waiting


def broken(faulty):
    """Names of the tests that fail, with what they say."""
    suite = type("Suite", (EstimatorConformance,), {"estimator": faulty})()
    found = {}
    for name in (name for name in dir(suite) if name.startswith("test_")):
        try:
            getattr(suite, name)()
        except LawBroken as law:
            found[name] = str(law)
    return found


def test_a_sound_estimator_passes():
    assert broken(Sound) == {}


@pytest.mark.parametrize(
    ("faulty", "test", "message"),
    [
        (OnlySent, "test_what_waits_is_expected", "decision=0\n  found: nothing for circuits [0]"),
        (Negative, "test_a_forecast_is_a_size_for_each_circuit", "finite bytes, not negative"),
        (Endless, "test_a_forecast_is_a_size_for_each_circuit", "finite bytes, not negative"),
        (OneForAll, "test_a_forecast_is_a_size_for_each_circuit", "shape (), not (2,)"),
        (Remembers, "test_the_same_run_gives_the_same_forecasts", "two runs, two forecasts"),
        (Writes, "test_what_was_seen_is_left_as_it_is", "it did"),
    ],
)  # fmt: skip
def test_each_law_is_found_broken(faulty, test, message):
    assert message in broken(faulty)[test]
