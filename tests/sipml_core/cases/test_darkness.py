"""Circuit capacity that reconfiguration takes away, by hand."""

import numpy as np
import pytest

from sipml_core.cases.darkness import DarkCapacity
from sipml_core.engine import CircuitSettings


class Planned:
    """Decides as its list says: at 0 all circuits are there, at 100 half of the capacity is dark for 30 us,
    at 200 nothing changes, at 300 a quarter is dark for 50 us and another one for 20."""

    interval_us = 100.0

    def decide(self, now_us, sent_bytes, backlog_bytes):
        gbps = np.full(4, 100.0)
        kept, dark = {
            0: (gbps, np.zeros(4)),
            100: ([100.0, 100.0, 0.0, 0.0], np.full(4, 30.0)),
            200: (None, None),
            300: ([0.0, 0.0, 100.0, 100.0], [50.0, 20.0, 0.0, 0.0]),
        }[now_us]
        return None if kept is None else CircuitSettings(gbps=gbps, kept_gbps=kept, dark_us=dark)


@pytest.fixture
def driver():
    driver = DarkCapacity(Planned())
    for now_us in (0, 100, 200, 300):
        driver.decide(now_us, np.zeros(4), np.zeros(4))
    return driver


@pytest.mark.parametrize(
    ("since_us", "until_us", "dark_us"),
    [
        (0, 400, 15 + 12.5 + 5),  # half of 30, a quarter of 50, a quarter of 20
        (0, 100, 0),
        (110, 130, 10),  # half of the 20 us that are left
        (0, 310, 15 + 2.5 + 2.5),  # the run ends before the circuits are there
        (320, 400, 7.5),
        (150, 290, 0),
    ],
)
def test_each_span_counts_with_its_part_of_the_capacity(driver, since_us, until_us, dark_us):
    assert driver.between(since_us, until_us) == pytest.approx(dark_us)


def test_it_decides_as_its_driver_does(driver):
    assert driver.interval_us == 100.0
    assert driver.decide(200, np.zeros(4), np.zeros(4)) is None
    assert driver.decide(300, np.zeros(4), np.zeros(4)).dark_us.tolist() == [50.0, 20.0, 0.0, 0.0]
