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


@pytest.mark.parametrize(
    ("text", "gbps"),
    [
        ("100 Gb/s", 100), ("100 Gbit/s", 100), ("100 Gbps", 100), ("100 gbps", 100), ("100000 Mb/s", 100),
        ("100 GB/s", 800), ("100 GBps", 800), ("8 b/s", 8e-9), ("1 B/s", 8e-9), ("100 kB/s", 8e-4),
    ],
)  # fmt: skip
def test_b_is_bit_and_capital_b_is_byte(text, gbps):
    """100 gigabytes are 800 gigabits."""
    assert parse_gbps(text) == pytest.approx(gbps, rel=1e-15)


@pytest.mark.parametrize(
    ("parse", "text", "readings"),
    [
        (parse_gbps, "100 gb/s", ['"100 Gb/s"', '"100 GB/s"']),
        (parse_gbps, "100 GBPS", ['"100 Gbps"', '"100 GBps"']),
        (parse_us, "1 Ms", ['"1 ms"', '"1e+06 s"']),
        (parse_us, "2 MS", ['"2 ms"', '"2e+06 s"']),
        (parse_bytes, "80 Gb", ['"80 GB"', '"10 GB"']),
        (parse_bytes, "80 gb", ['"80 GB"', '"10 GB"']),
        (parse_bytes, "8 b", ['"8 B"', '"1 B"']),
        (parse_bytes, "16 Gib", ['"16 GiB"', '"2 GiB"']),
    ],
)
def test_what_has_two_readings_is_refused_with_both(parse, text, readings):
    """A mega is no milli, and 80 gigabits are 10 gigabytes."""
    with pytest.raises(ConfigError) as refusal:
        parse(text)
    assert " or ".join(readings) in str(refusal.value)
    assert repr(text) in str(refusal.value)


def test_letters_that_leave_one_reading_may_be_large_or_small():
    assert parse_us("5 NS") == pytest.approx(0.005)
    assert parse_gbps("2 tbps") == 2000


def test_times_and_sizes_know_their_units():
    """1 GB = 1e9 bytes, 1 GiB = 2^30 bytes, 1 ms = 1000 us."""
    assert parse_us("10 ms") == 10_000
    assert parse_us(25) == 25
    assert parse_us("50 ns") == pytest.approx(0.05)
    assert parse_bytes("1 GB") == 1e9
    assert parse_bytes("1GiB") == 2**30


@pytest.mark.parametrize(
    "value",
    ["fast", "", "2 Gbits", "nan", "inf", float("nan"), float("inf"), None, True, [2], "2 2 Tbps", 10**400],
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
