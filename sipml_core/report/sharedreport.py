"""Results of a shared cluster as files, and as a table."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
from rich.table import Table

from sipml_core.fields import format_us
from sipml_core.report.fitting import fitted
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


def shared_table(result: SharedResult, width: int = 160) -> Table:
    """Return a table of at most `width` characters, with a row for each network."""
    jobs = len(result.rows) // len(result.summaries)
    return fitted(
        f"{result.title}: {jobs} jobs, {result.allocator}",
        ("interconnect", "makespan", "used", "split", "waited", "slow-down", "slowest", "infeasible"),
        [
            {
                "interconnect": row.topology,
                "makespan": format_us(row.makespan_us),
                "used": f"{100 * row.utilisation:.1f} %",
                "split": f"{100 * row.fragmentation:.1f} %",
                "waited": format_us(row.waited_us),
                "slow-down": f"{row.slowdown:.3f}x",
                "slowest": f"{row.slowest:.3f}x",
                "infeasible": str(row.infeasible),
            }
            for row in result.summaries
        ],
        width=width,
        drop=("infeasible", "split", "used"),
        left=("interconnect",),
    )
