"""Results of a shared cluster as files, and as a table."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
from rich.table import Table
from rich.text import Text

from sipml_core.fields import format_us
from sipml_core.report.resultfiles import write_atomically

if TYPE_CHECKING:
    from sipml_core.sharing import SharedResult


def write_shared(result: SharedResult, folder: Path) -> list[Path]:
    """Write jobs.csv, a row for each job on each network, and networks.csv; return their paths."""
    jobs = [attrs.asdict(row) | {"waited_us": row.waited_us, "slowdown": row.slowdown} for row in result.rows]
    networks = [attrs.asdict(row) for row in result.summaries]
    files = {"jobs.csv": jobs, "networks.csv": networks}
    for name, rows in files.items():
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_atomically(folder / name, text.getvalue().encode())
    return [folder / name for name in files]


def shared_table(result: SharedResult) -> Table:
    """Return a table with a row for each network."""
    jobs = len(result.rows) // len(result.summaries)
    table = Table(title=Text(f"{result.title}: {jobs} jobs, {result.allocator}"))
    table.add_column("interconnect")
    for heading in ("makespan", "used", "split", "waited", "slow-down", "slowest", "infeasible"):
        table.add_column(heading, justify="right")
    for row in result.summaries:
        table.add_row(
            Text(row.topology),
            format_us(row.makespan_us),
            f"{100 * row.utilisation:.1f} %",
            f"{100 * row.fragmentation:.1f} %",
            format_us(row.waited_us),
            f"{row.slowdown:.3f}x",
            f"{row.slowest:.3f}x",
            str(row.infeasible),
        )
    return table
