"""Traffic matrices from files: CSV or .npy, square, row = sender."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError
from sipml_core.model import CircuitControl, TrafficMatrix


def read_matrix(path: Path) -> TrafficMatrix:
    """A traffic matrix [N, N] from a .npy file or a CSV of N lines with N numbers each.

    Raises
    ------
    ConfigError
        The file cannot be read, is not square, or has an entry that is negative, not finite or on
        the diagonal; the entry is named.
    """
    try:
        dense = _read_npy(path) if path.suffix == ".npy" else _read_csv(path)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    try:
        return TrafficMatrix.from_dense(dense)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _read_npy(path: Path) -> NDArray[np.float64]:
    try:
        return np.asarray(np.load(path, allow_pickle=False), dtype=np.float64)
    except (ValueError, EOFError) as error:
        raise ConfigError(f"{path} is no array of numbers: {error}") from None


def _read_csv(path: Path) -> NDArray[np.float64]:
    rows = []
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            rows.append([_number(cell, path, number) for cell in line.split(",")])
    if len({len(row) for row in rows}) != 1 or len(rows[0]) != len(rows):
        widths = sorted({len(row) for row in rows}) or [0]
        columns = " or ".join(map(str, widths))
        raise ConfigError(f"{path}: must be square, got {len(rows)} lines of {columns} numbers")
    return np.array(rows)


def _number(cell: str, path: Path, line: int) -> float:
    try:
        return float(cell)
    except ValueError:
        raise ConfigError(f"{path}, line {line}: {cell.strip()!r} is not a number") from None


def refuse_out_of_reach(control: CircuitControl, traffic: TrafficMatrix) -> None:
    """`ConfigError` naming a pair that wants to talk and can never hold a circuit."""
    out = ~control.may_connect(traffic.src, traffic.dst)
    if out.any():
        k = int(np.flatnonzero(out)[0])
        raise ConfigError(
            f"traffic[{traffic.src[k]}, {traffic.dst[k]}] is out of reach: no circuit can join them "
            f"({int(out.sum())} such pairs)"
        )
