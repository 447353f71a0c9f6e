"""Details and traces on disk: sizes are known, and bounded, before anything is written."""

from __future__ import annotations

import csv
import importlib.util
import io
import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sipml_core.details import CaseDetails, Selection, trace_bytes, trace_size
from sipml_core.errors import ConfigError
from sipml_core.fields import format_bytes
from sipml_core.model import Result
from sipml_core.report.detailrequest import DetailRequest
from sipml_core.report.resultfiles import write_atomically

#: Rows of a CSV file that are formatted at a time.
_ROWS = 50_000


def case_names(cases: Iterable[CaseDetails]) -> list[str]:
    """Return the names of cases as parts of names of files, each another, whatever their labels hold.

    >>> import types
    >>> labels = [("a/b", "c d"), ("a-b", "c-d"), ("a", "c")]
    >>> records = [types.SimpleNamespace(workload=first, topology=second) for first, second in labels]
    >>> case_names([types.SimpleNamespace(record=record) for record in records])
    ['a-b-on-c-d', 'a-b-on-c-d-2', 'a-on-c']
    """
    names: list[str] = []
    for each in cases:
        plain = re.sub(r"[^\w.+-]+", "-", f"{each.record.workload} on {each.record.topology}")
        numbered = (f"{plain}-{number}" if number > 1 else plain for number in itertools.count(1))
        names.append(next(name for name in numbered if name.casefold() not in map(str.casefold, names)))
    return names


def recorded_cases(result: Result, selection: Selection) -> list[CaseDetails]:
    """Return the selected details of each case that ran.

    Raises
    ------
    ConfigError
        The selection is not in one of them.
    """
    found = [each for each in result.recorded if isinstance(each, CaseDetails)]
    return [each.selected(selection) for each in found]


def details_size_line(cases: Iterable[CaseDetails], request: DetailRequest) -> str:
    """Return what will be written, in words.

    Raises
    ------
    ConfigError
        It is more than the limit; the line says how to ask for less.
    """
    parts = []
    if request.folder is not None:
        tables = {name: 0.0 for name in ("flows", "circuits", "traffic", "links", "gpus")}
        for each in cases:
            for name, size_bytes in each.size_bytes().items():
                tables[name] += size_bytes
        total = sum(tables.values())
        _refuse_more("details", total, request.limit_bytes)
        told = ", ".join(f"{name} {format_bytes(size)}" for name, size in tables.items() if size)
        parts.append(f"details of about {format_bytes(total)} ({told})")
    if request.trace is not None:
        sizes = [trace_size(each) for each in cases]
        total = sum(size for _, size in sizes)
        _refuse_more("the trace", total, request.limit_bytes)
        parts.append(f"{sum(count for count, _ in sizes)} slices of trace, about {format_bytes(total)}")
    return f"writing {' and '.join(parts)}"


def _refuse_more(what: str, size_bytes: float, limit_bytes: float) -> None:
    if size_bytes > limit_bytes:
        raise ConfigError(
            f"{what} would take about {format_bytes(size_bytes)}, more than --details-limit "
            f"{format_bytes(limit_bytes)}; choose --replicas, --gpus or a --window, or raise the limit"
        )


def write_details(cases: list[CaseDetails], request: DetailRequest) -> list[Path]:
    """Write what was asked for; each file appears whole or not at all."""
    written = []
    for each, name in zip(cases, case_names(cases), strict=True):
        if request.folder is not None:
            written += _write_tables(each, request.folder / name)
        if request.trace is not None:
            trace = request.trace
            if len(cases) > 1:
                trace = trace.with_name(f"{trace.stem}-{name}{trace.suffix}")
            write_atomically(trace, trace_bytes(each))
            written.append(trace)
    return written


def _write_tables(details: CaseDetails, folder: Path) -> list[Path]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot write to {folder}: {error.strerror}") from None
    written = []
    for name, table in details.tables().items():
        if name == "flows" and importlib.util.find_spec("pyarrow"):
            path, content = folder / "flows.parquet", parquet(table)
            (folder / "flows.csv").unlink(missing_ok=True)  # of an earlier run
        else:
            path, content = folder / f"{name}.csv", b"".join(csv_parts(table))
        write_atomically(path, content)
        written.append(path)
    if not details.record.decisions:
        (folder / "circuits.csv").unlink(missing_ok=True)
    return written


def csv_parts(table: dict[str, Any]) -> Iterator[bytes]:
    """Yield a table as CSV: numbers as they are read back, truth values as true and false.

    >>> b"".join(csv_parts({"gpu": np.array([0]), "us": np.array([0.1]), "simulated": np.array([True])}))
    b'gpu,us,simulated\\n0,0.1,true\\n'
    """
    columns = [
        np.where(column, "true", "false") if column.dtype == np.bool_ else column for column in table.values()
    ]
    count = len(columns[0])
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table)
    for first in range(0, max(count, 1), _ROWS):
        rows = (column[first : first + _ROWS].tolist() for column in columns)
        writer.writerows(zip(*rows, strict=True))
        yield text.getvalue().encode()
        text.seek(0)
        text.truncate()


def parquet(table: dict[str, Any]) -> bytes:
    """Return a table as Parquet, the same bytes for the same table."""
    import pyarrow
    import pyarrow.parquet

    buffer = io.BytesIO()
    columns = {
        name: pyarrow.array(column.tolist(), pyarrow.string()).dictionary_encode()
        if column.dtype == object
        else pyarrow.array(column)
        for name, column in table.items()
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), buffer)
    return buffer.getvalue()
