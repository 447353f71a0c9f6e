"""Traffic matrices from files: CSV, .npy or a sparse .npz; square, row = sender."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from tokenize import TokenError
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError, brief, shown
from sipml_core.model import MAX_GPUS, CircuitControl, TrafficMatrix

#: Demands that are not 0 lie in between: capacity over demand, and sums of demands, stay finite.
LEAST_DEMAND, MOST_DEMAND = 1e-200, 1e200

#: What NumPy raises over files that are damaged, too large, or something else.
_UNREADABLE = (
    ValueError, EOFError, MemoryError, BadZipFile, zlib.error, struct.error, TokenError, LookupError,
    TypeError, RuntimeError, SyntaxError, OverflowError, AttributeError,
)  # fmt: skip


def read_matrix(path: Path) -> TrafficMatrix:
    """Return the traffic matrix [N, N] of a file.

    A .npy file holds an array of numbers, a .npz file a sparse matrix as ``scipy.sparse.save_npz`` writes it
    (csr, csc or coo), any other file is CSV of N lines with N numbers each.

    Raises
    ------
    ConfigError
        The file cannot be read, is not square, holds something else than real numbers, or has an entry that
        is negative, not finite, too small or large to divide by, or on the diagonal; the entry is named.
    """
    try:
        traffic = _read_numpy(path) if path.suffix.lower() in (".npy", ".npz") else _read_csv(path)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    out = (traffic.demand < LEAST_DEMAND) | (traffic.demand > MOST_DEMAND)
    if out.any():
        k = int(np.flatnonzero(out)[0])
        raise ConfigError(
            f"{path}: traffic[{traffic.src[k]}, {traffic.dst[k]}] must be 0, or from {LEAST_DEMAND:g} to "
            f"{MOST_DEMAND:g}, got {traffic.demand[k]:g}"
        )
    return traffic


def _read_numpy(path: Path) -> TrafficMatrix:
    """From a .npy file, or a .npz one: what it is decides, not what it is called."""
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            arrays = {name: loaded[name] for name in loaded.files} if hasattr(loaded, "files") else None
    except _UNREADABLE as error:
        reason = brief(" ".join(str(error).split())) or type(error).__name__
        raise ConfigError(f"is no array of numbers: {reason}") from None
    return _from_dense(_real(loaded)) if arrays is None else _from_sparse(arrays)


def _from_dense(dense: NDArray[np.float64]) -> TrafficMatrix:
    if dense.ndim == 2 and dense.shape[0] == dense.shape[1]:
        _check_gpus(len(dense))
    return TrafficMatrix.from_dense(dense)


def _from_sparse(arrays: Mapping[str, NDArray[Any]]) -> TrafficMatrix:
    """From the arrays of a sparse matrix: entry k is `data[k]`, in the row and column that its form says."""
    kind = arrays["format"].item() if "format" in arrays and arrays["format"].ndim == 0 else None
    kind = kind.decode(errors="replace") if isinstance(kind, bytes) else kind
    needed = {"csr": ("indices", "indptr"), "csc": ("indices", "indptr"), "coo": ("row", "col")}.get(
        str(kind)
    )
    if needed is None or not {"shape", "data", *needed} <= set(arrays):
        raise ConfigError(
            f"must be a sparse matrix in csr, csc or coo form, as scipy.sparse.save_npz writes it, "
            f"got arrays {brief(', '.join(arrays))} of form {shown(kind)}; a dense one belongs in .npy"
        )
    shape, demand = _indices(arrays["shape"]), _real(arrays["data"])
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ConfigError(f"must be square, got shape {tuple(shape.tolist())}")
    gpus = int(shape[0])
    _check_gpus(gpus)
    if kind == "coo":
        row, column = _indices(arrays["row"]), _indices(arrays["col"])
    else:
        row, column = _lines(_indices(arrays["indptr"]), gpus), _indices(arrays["indices"])
        if kind == "csc":
            row, column = column, row
    if demand.ndim != 1 or not len(row) == len(column) == len(demand):
        raise ConfigError(
            f"is damaged: {demand.size} entries in {len(row)} places of rows and {len(column)} of columns"
        )
    return TrafficMatrix.from_pairs(gpus, row, column, demand)


def _lines(starts: NDArray[np.int64], lines: int) -> NDArray[np.int64]:
    """The line of each entry: those of line i are `starts[i]` up to `starts[i + 1]`. [entries]

    >>> _lines(np.array([0, 2, 2, 3]), 3).tolist()
    [0, 0, 2]
    """
    lengths = np.diff(starts)
    if len(starts) != lines + 1 or starts[0] != 0 or (lengths < 0).any() or starts[-1] > 2**31:
        raise ConfigError("is damaged: its indptr does not start at 0 and rise to the number of entries")
    return np.repeat(np.arange(lines), lengths)


def _indices(array: NDArray[Any]) -> NDArray[np.int64]:
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise ConfigError(f"is damaged: its indices are of type {array.dtype} and rank {array.ndim}")
    return array.astype(np.int64)


def _real(array: NDArray[Any]) -> NDArray[np.float64]:
    """The same as float64; complex numbers, times, texts and structures are none."""
    if array.dtype.kind not in "iuf":
        raise ConfigError(f"must hold real numbers, got {brief(str(array.dtype))}")
    with np.errstate(over="ignore"):  # what becomes infinite is refused with its place
        return array.astype(np.float64)


def _check_gpus(gpus: int) -> None:
    if not 1 <= gpus <= MAX_GPUS:
        raise ConfigError(f"must have a row for each of 1 to {MAX_GPUS} GPUs, got {gpus} x {gpus}")


def _read_csv(path: Path) -> TrafficMatrix:
    rows = []
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            rows.append([_number(cell, number) for cell in line.split(",")])
    if not rows:
        raise ConfigError("is empty: it must have a line of N numbers for each of N GPUs")
    if len({len(row) for row in rows}) != 1 or len(rows[0]) != len(rows):
        columns = " or ".join(str(width) for width in sorted({len(row) for row in rows})[:3])
        raise ConfigError(f"must be square, got {len(rows)} lines of {columns} numbers")
    return _from_dense(np.array(rows))


def _number(cell: str, line: int) -> float:
    try:
        return float(cell)
    except ValueError:
        raise ConfigError(f"line {line}: {shown(cell.strip())} is not a number") from None


def refuse_out_of_reach(control: CircuitControl, traffic: TrafficMatrix) -> None:
    """`ConfigError` naming a pair that wants to talk and can never hold a circuit."""
    out = ~control.may_connect(traffic.src, traffic.dst)
    if out.any():
        k = int(np.flatnonzero(out)[0])
        raise ConfigError(
            f"traffic[{traffic.src[k]}, {traffic.dst[k]}] is out of reach: no circuit can join them "
            f"({int(out.sum())} such pairs)"
        )
