"""Units that stand in names: Gbps, us, bytes. 1 Gbps = 1e9 bit/s, 1 GB = 1e9 bytes."""

from __future__ import annotations

import math
import re

from sipml_core.errors import ConfigError

#: Bytes that 1 Gbps carries in 1 us: 1e9 bit/s / 8 bit / 1e6 us/s.
BYTES_PER_US_PER_GBPS = 125.0

_GBPS = {
    "bps": 1e-9, "kbps": 1e-6, "mbps": 1e-3, "gbps": 1.0, "tbps": 1e3,
    "b/s": 8e-9, "kb/s": 8e-6, "mb/s": 8e-3, "gb/s": 8.0, "tb/s": 8e3,
}  # fmt: skip
_US = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6, "min": 60e6, "h": 3600e6}
_BYTES = {
    "b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
    "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30, "tib": 2.0**40,
}  # fmt: skip
_QUANTITY = re.compile(r"\s*([-+]?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*([A-Za-z/]*)\s*")


def parse_gbps(value: float | str) -> float:
    """A bandwidth in Gbps from a number (Gbps) or text such as ``"2 Tbps"`` or ``"250 GB/s"``."""
    return _parse(value, _GBPS, "a bandwidth", "Gbps", '2000, "2 Tbps" or "250 GB/s"')


def parse_us(value: float | str) -> float:
    """A time in us from a number (us) or text such as ``"10 ms"``."""
    return _parse(value, _US, "a time", "us", '25, "25 us" or "10 ms"')


def parse_bytes(value: float | str) -> float:
    """A size in bytes from a number (bytes) or text such as ``"25 MB"`` or ``"100 MiB"``."""
    return _parse(value, _BYTES, "a size", "bytes", '25e6, "25 MB" or "100 MiB"')


def _parse(value: float | str, scale: dict[str, float], what: str, unit: str, examples: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ConfigError(f"must be {what} such as {examples}, got {value!r}")
    if not isinstance(value, str):
        return _finite(float(value), value, what, examples)
    match = _QUANTITY.fullmatch(value)
    if match is None:
        raise ConfigError(f"must be {what} such as {examples}, got {value!r}")
    number, suffix = match.groups()
    if suffix and suffix.lower() not in scale:
        raise ConfigError(f"has an unknown unit {suffix!r} in {value!r}; write {what} such as {examples}")
    factor = scale[suffix.lower()] if suffix else 1.0
    return _finite(float(number) * factor, value, what, examples)


def _finite(number: float, value: object, what: str, examples: str) -> float:
    if not math.isfinite(number):
        raise ConfigError(f"must be {what} such as {examples}, got {value!r}")
    return number


def format_us(time_us: float) -> str:
    """A time for people: the unit that leaves one to three digits before the point."""
    for limit, unit, scale in ((1e3, "us", 1.0), (1e6, "ms", 1e3), (60e6, "s", 1e6), (3600e6, "min", 60e6)):
        if abs(time_us) < limit:
            return f"{time_us / scale:.4g} {unit}"
    return f"{time_us / 3600e6:.4g} h"


def format_bytes(size_bytes: float) -> str:
    """A size for people, in powers of 1000."""
    for limit, unit, scale in ((1e3, "B", 1.0), (1e6, "kB", 1e3), (1e9, "MB", 1e6), (1e12, "GB", 1e9)):
        if abs(size_bytes) < limit:
            return f"{size_bytes / scale:.4g} {unit}"
    return f"{size_bytes / 1e12:.4g} TB"


def format_gbps(bandwidth_gbps: float) -> str:
    """A bandwidth for people."""
    if abs(bandwidth_gbps) < 1e3:
        return f"{bandwidth_gbps:.4g} Gbps"
    return f"{bandwidth_gbps / 1e3:.4g} Tbps"
