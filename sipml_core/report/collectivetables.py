"""The table of nccl-tests, for the terminal and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from sipml_core.cases import CollectiveTime
from sipml_core.report.fitting import fitted
from sipml_core.report.resultfiles import prepare_folder, write_atomically

#: Bytes of one element, by the name that nccl-tests prints.
ELEMENT_BYTES = {"int8": 1, "half": 2, "bfloat16": 2, "float": 4, "double": 8}
COLUMNS = ("collective", "ranks", "size", "count", "type", "time", "algbw", "busbw", "algorithm", "how")
_UNITS = {"size": "B", "time": "us", "algbw": "GB/s", "busbw": "GB/s"}
#: Left out one by one, in this order, where the terminal is too narrow.
_DROPPED = ("ranks", "type", "count", "how")


def collective_cells(row: CollectiveTime, kind: str) -> list[str]:
    """Return a row as nccl-tests print it: size [B], count [elements], time [us], bandwidths [GB/s].

    The count is of what one rank gets of a gather, a scatter or an all-to-all (nccl-tests, PERFORMANCE.md).

    >>> row = CollectiveTime(
    ...     collective="all_gather", ranks=4, size_bytes=4096.0, algorithm="flat", how="ring LL", time_us=8.0
    ... )
    >>> collective_cells(row, "float")
    ['all_gather', '4', '4096', '256', 'float', '8.00', '0.51', '0.38', 'flat', 'ring LL']
    """
    parts = row.ranks if row.collective in ("all_gather", "reduce_scatter", "all_to_all") else 1
    count = int(row.size_bytes) // ELEMENT_BYTES[kind] // parts
    return [
        row.collective, str(row.ranks), f"{row.size_bytes:.0f}", str(count), kind, f"{row.time_us:.2f}",
        f"{row.algbw_gbytes_per_s:.2f}", f"{row.busbw_gbytes_per_s:.2f}", row.algorithm, row.how,
    ]  # fmt: skip


def collective_table(rows: Sequence[CollectiveTime], kind: str, title: str, width: int = 160) -> Table:
    """Return the rows as a table of at most `width` characters."""
    headings = [f"{column}\n({_UNITS[column]})" if column in _UNITS else column for column in COLUMNS]
    table = fitted(
        title,
        headings,
        [dict(zip(headings, collective_cells(row, kind), strict=True)) for row in rows],
        width=width,
        drop=_DROPPED,
        left=("collective", "type", "algorithm", "how"),
    )
    shown = {str(column.header) for column in table.columns}
    absent = [heading for heading in headings if heading not in shown]
    if absent:
        table.caption = Text(f"left out: {', '.join(absent)}; --csv FILE, or a wider terminal, has all")
    return table


def write_collectives(rows: Sequence[CollectiveTime], kind: str, file: Path) -> Path:
    """Write the rows as CSV, with units in the names of columns; return the file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ("collective", "ranks", "size_bytes", "count", "type", "time_us", "algbw_gbytes_per_s",
         "busbw_gbytes_per_s", "algorithm", "how")
    )  # fmt: skip
    writer.writerows(collective_cells(row, kind) for row in rows)
    prepare_folder(file.parent)
    write_atomically(file, text.getvalue().encode())
    return file
