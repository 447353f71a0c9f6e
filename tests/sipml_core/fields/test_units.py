import pytest

from sipml_core.errors import ConfigError
from sipml_core.fields.units import (
    BYTES_PER_US_PER_GBPS,
    format_bytes,
    format_gbps,
    format_us,
    parse_bytes,
    parse_gbps,
    parse_us,
)


def test_one_gbps_moves_125_bytes_in_a_microsecond():
    """1e9 bit/s = 1.25e8 byte/s = 125 byte/us."""
    assert BYTES_PER_US_PER_GBPS == 125.0


@pytest.mark.parametrize(
    "text", [2000, 2000.0, "2000", "2000 Gbps", "2 Tbps", "2tbps", "250 GB/s", "2e3", "0.25 TB/s"]
)
def test_equal_bandwidths_are_equal(text):
    """Bits and bytes differ by 8; a number without unit is Gbps."""
    assert parse_gbps(text) == pytest.approx(2000, rel=1e-15)


def test_times_and_sizes_know_their_units():
    """1 GB = 1e9 bytes, 1 GiB = 2^30 bytes, 1 ms = 1000 us."""
    assert parse_us("10 ms") == 10_000
    assert parse_us(25) == 25
    assert parse_us("50 ns") == pytest.approx(0.05)
    assert parse_bytes("1 GB") == 1e9
    assert parse_bytes("1GiB") == 2**30


@pytest.mark.parametrize(
    "value", ["fast", "", "2 Gbits", "nan", "inf", float("nan"), float("inf"), None, True, [2], "2 2 Tbps"]
)
def test_what_is_no_bandwidth_is_refused(value):
    """The refusal shows the value and examples of what is allowed."""
    with pytest.raises(ConfigError, match="2 Tbps"):
        parse_gbps(value)


def test_people_read_three_to_four_digits():
    assert format_us(25) == "25 us"
    assert format_us(12_345) == "12.35 ms"
    assert format_us(90e6) == "1.5 min"
    assert format_us(7200e6) == "2 h"
    assert format_bytes(999) == "999 B"
    assert format_bytes(2.5e9) == "2.5 GB"
    assert format_gbps(400) == "400 Gbps"
    assert format_gbps(8000) == "8 Tbps"
