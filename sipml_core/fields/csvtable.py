"""Tables of positive numbers that a user brings as CSV. Messages name key, file, line and column."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from sipml_core.errors import ConfigError, shown
from sipml_core.fields.checks import LEAST_POSITIVE, MOST_NUMBER


def read_table(
    path: Path, *, key: str, numbers: Sequence[str], text: Sequence[str] = ()
) -> Iterator[tuple[int, list[str], list[float]]]:
    """Rows of a CSV file with a header line.

    Parameters
    ----------
    path
        UTF-8 file; columns not asked for are ignored.
    key
        Configuration key that named the file, for messages.
    numbers, text
        Columns that must be there; the former must be positive.

    Yields
    ------
    line, texts, values
        Of each row.

    Raises
    ------
    ConfigError
        The file cannot be read, lacks a column, has no rows, or a number is not positive.
    """
    where = f"{key}: {str(path)!r}"
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            columns = reader.fieldnames or ()
            rows = [(reader.line_num, row) for row in reader]
    except (OSError, ValueError, csv.Error) as error:
        raise ConfigError(f"{key}: cannot read {str(path)!r}: {getattr(error, 'strerror', error)}") from None
    for column in (*text, *numbers):
        if list(columns).count(column) != 1:
            how = "has twice" if column in columns else "lacks"
            raise ConfigError(f"{where} {how} the column {column!r}")
    if not rows:
        raise ConfigError(f"{where} has no rows")
    for line, row in rows:
        values = [_positive(f"{where} line {line}: {column}", row[column]) for column in numbers]
        yield line, [row[column] or "" for column in text], values


def _positive(where: str, text: str | None) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise ConfigError(f"{where} must be a positive number, got {shown(text)}")
    if not LEAST_POSITIVE <= value <= MOST_NUMBER:
        raise ConfigError(f"{where} must be from {LEAST_POSITIVE:g} to {MOST_NUMBER:g}, got {shown(text)}")
    return value
