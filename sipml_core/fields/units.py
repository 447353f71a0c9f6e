"""Units that stand in names: Gbps, us, bytes. 1 Gbps = 1e9 bit/s, 1 GB = 1e9 bytes; b is bit, B is byte."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

from sipml_core.errors import ConfigError, shown
from sipml_core.fields.values import frozen

#: Bytes that 1 Gbps carries in 1 us: 1e9 bit/s / 8 bit / 1e6 us/s.
BYTES_PER_US_PER_GBPS = 125.0

_POWERS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}

#: Units of bandwidth. [Gbps]
_GBPS = {
    **{f"{p}{bit}": power / 1e9 for p, power in _POWERS.items() for bit in ("bps", "b/s", "bit/s")},
    **{f"{p}{byte}": 8 * power / 1e9 for p, power in _POWERS.items() for byte in ("Bps", "B/s")},
    # "bps" alone is never bytes, so that small letters in front of it leave nothing open.
    **{"mbps": 1e-3, "gbps": 1.0, "tbps": 1e3},
}
_US = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6, "min": 60e6, "h": 3600e6}
_BYTES = {f"{prefix}B": power for prefix, power in {**_POWERS, **_BINARY}.items()}

#: Units that are known and not taken: how what they stand for is written instead, and how often that.
_MEGASECONDS = {"Ms": ("s", 1e6)}
_BITS = {f"{prefix}b": (f"{prefix}B", 0.125) for prefix in (*_POWERS, *_BINARY)}

_QUANTITY = re.compile(r"\s*([-+]?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*([A-Za-z/]*)\s*")


@frozen(kw_only=True)
class _Quantity:
    """A kind of quantity: its units, and what messages say of it."""

    what: str
    #: Unit -> how much of the unit of the result it is.
    units: Mapping[str, float]
    #: Unit that is refused -> the unit to write, and the number of those in one.
    refused: Mapping[str, tuple[str, float]]
    examples: str

    def parse(self, value: float | str) -> float:
        """Return the value in the unit of numbers without one."""
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise self.error(value)
        if not isinstance(value, str):
            return self._finite(value, 1.0, value)
        match = _QUANTITY.fullmatch(value)
        if match is None:
            raise self.error(value)
        number, unit = match.groups()
        if unit and unit not in self.units:
            readings = list(self._readings(float(number), unit))
            if len(readings) != 1 or unit in self.refused:
                raise self._unclear(value, unit, [text for text, _ in readings])
            return self._finite(readings[0][1], 1.0, value)
        return self._finite(float(number), self.units[unit] if unit else 1.0, value)

    def error(self, value: object) -> ConfigError:
        return ConfigError(f"must be {self.what} such as {self.examples}, got {shown(value)}")

    def _finite(self, number: float, scale: float, value: object) -> float:
        try:
            result = float(number) * scale
        except OverflowError:  # an integer past 1.8e308
            result = math.inf
        if not math.isfinite(result):
            raise self.error(value)
        return result

    def _readings(self, number: float, unit: str) -> Iterator[tuple[str, float]]:
        """Yield what a unit may mean, its letters small or capital: how to write that, and its value."""
        found: dict[float, str] = {}
        for known, scale in self.units.items():
            if known.lower() == unit.lower():
                found.setdefault(number * scale, f'"{number:g} {known}"')
        for known, (instead, times) in self.refused.items():
            if known.lower() == unit.lower():
                scaled = number * times
                found.setdefault(scaled * self.units[instead], f'"{scaled:g} {instead}"')
        for result, text in found.items():
            yield text, result

    def _unclear(self, value: object, unit: str, readings: list[str]) -> ConfigError:
        if not readings:
            return ConfigError(
                f"has an unknown unit {shown(unit)} in {shown(value)}; write {self.what} such as "
                f"{self.examples}"
            )
        return ConfigError(
            f"must say what {unit!r} means (b is bit, B is byte, m is milli, M is mega): write "
            f"{' or '.join(readings)}, got {shown(value)}"
        )


_BANDWIDTH = _Quantity(what="a bandwidth", units=_GBPS, refused={}, examples='2000, "2 Tbps" or "250 GB/s"')
_TIME = _Quantity(what="a time", units=_US, refused=_MEGASECONDS, examples='25, "25 us" or "10 ms"')
_SIZE = _Quantity(what="a size", units=_BYTES, refused=_BITS, examples='25e6, "25 MB" or "100 MiB"')


def parse_gbps(value: float | str) -> float:
    """Return a bandwidth in Gbps from a number (Gbps) or text with a unit.

    >>> parse_gbps("2 Tbps"), parse_gbps("100 Gb/s"), parse_gbps("100 GB/s")
    (2000.0, 100.0, 800.0)
    """
    return _BANDWIDTH.parse(value)


def parse_us(value: float | str) -> float:
    """Return a time in us from a number (us) or text such as ``"10 ms"``."""
    return _TIME.parse(value)


def parse_bytes(value: float | str) -> float:
    """Return a size in bytes from a number (bytes) or text such as ``"25 MB"`` or ``"100 MiB"``."""
    return _SIZE.parse(value)


def format_us(time_us: float) -> str:
    """Return a time for people, in the unit that leaves one to three digits before the point."""
    for limit, unit, scale in ((1e3, "us", 1.0), (1e6, "ms", 1e3), (60e6, "s", 1e6), (3600e6, "min", 60e6)):
        if abs(time_us) < limit:
            return f"{time_us / scale:.4g} {unit}"
    return f"{time_us / 3600e6:.4g} h"


def format_bytes(size_bytes: float) -> str:
    """Return a size for people, in powers of 1000."""
    for limit, unit, scale in ((1e3, "B", 1.0), (1e6, "kB", 1e3), (1e9, "MB", 1e6), (1e12, "GB", 1e9)):
        if abs(size_bytes) < limit:
            return f"{size_bytes / scale:.4g} {unit}"
    return f"{size_bytes / 1e12:.4g} TB"


def format_gbps(bandwidth_gbps: float) -> str:
    """Return a bandwidth for people."""
    if abs(bandwidth_gbps) < 1e3:
        return f"{bandwidth_gbps:.4g} Gbps"
    return f"{bandwidth_gbps / 1e3:.4g} Tbps"


def format_number(number: float) -> str:
    """Return a count or a rate for people: four digits, without an exponent below a trillion.

    >>> format_number(3153.4), format_number(76218.0), format_number(1.3529e7), format_number(0.012345)
    ('3153', '76 220', '13 530 000', '0.01235')
    """
    if not 1e4 <= abs(number) < 1e12:
        return f"{number:.4g}"
    return f"{float(f'{number:.4g}'):,.0f}".replace(",", " ")


def format_count(number: float) -> str:
    """Return a large number in words.

    >>> format_count(300e9), format_count(1e6), format_count(1.5e12), format_count(500)
    ('300 billion', '1 million', '1.5 trillion', '500')
    """
    for size, word in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if number >= size:
            return f"{number / size:.4g} {word}"
    return f"{number:g}"
