"""The study of fragmentation: two tables, CSV files and a figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
from rich.table import Table
from rich.text import Text

from sipml_core.fields import format_us
from sipml_core.report.fitting import fitted
from sipml_core.report.plots import figure_bytes, new_figure
from sipml_core.report.resultfiles import plain_row, prepare_folder, to_csv, write_atomically
from sipml_core.report.seriesstyles import COLOURS

if TYPE_CHECKING:
    from sipml_core.sharing import SettingRow, SharingVerdict

#: Names of the files.
ROWS, VERDICTS, PICTURE = "fragmentation.csv", "fragmentation_claims.csv", "fragmentation.svg"
#: From so many characters on settings stand in one line.
_WIDE = 100


def write_fragmentation(
    rows: Sequence[SettingRow], verdicts: Sequence[SharingVerdict], folder: Path, picture: bool
) -> list[Path]:
    """Write the rows and the verdicts as CSV, and the figure with `picture`; return the files."""
    prepare_folder(folder)
    told = [{"setting": row.setting, **plain_row(attrs.asdict(row.summary))} for row in rows]
    judged = [plain_row(attrs.asdict(verdict)) for verdict in verdicts]
    contents = {
        ROWS: to_csv(told, list(told[0])).encode(),
        VERDICTS: to_csv(judged, list(judged[0])).encode(),
    }
    if picture:
        contents[PICTURE] = figure_bytes(_drawn(rows), "svg")
    for name, content in contents.items():
        write_atomically(folder / name, content)
    return [folder / name for name in contents]


def fragmentation_tables(
    rows: Sequence[SettingRow], verdicts: Sequence[SharingVerdict], width: int = 160
) -> tuple[Table, Table]:
    """Return the rows, in at most `width` characters, and the verdicts."""
    table = fitted(
        "fragmentation",
        ("GPUs of a job", "network", "makespan", "used", "split", "waited", "slow-down", "slowest"),
        [
            {
                # In two lines: "contiguous," and "front switch".
                "GPUs of a job": row.setting.replace(", ", ",\n") if width < _WIDE else row.setting,
                "network": row.summary.topology,
                "makespan": format_us(row.summary.makespan_us),
                "used": f"{100 * row.summary.utilisation:.0f} %",
                "split": f"{100 * row.summary.fragmentation:.0f} %",
                "waited": format_us(row.summary.waited_us),
                "slow-down": f"{row.summary.slowdown:.3f}x",
                "slowest": f"{row.summary.slowest:.2f}x",
            }
            for row in rows
        ],
        width=width,
        drop=("used", "split"),
        left=("GPUs of a job", "network"),
    )
    judged = Table(title="claims", title_justify="left")
    for heading in ("claim", "ratio", "verdict"):
        judged.add_column(heading)
    for verdict in verdicts:
        ratio = "-" if verdict.ratio is None else f"{verdict.ratio:.3g}x"
        judged.add_row(Text(verdict.claim), ratio, Text(verdict.verdict))
    return table, judged


def _drawn(rows: Sequence[SettingRow]) -> Any:
    """Return the mean waiting and slow-down in each setting, a bar for each network."""
    labels = list(dict.fromkeys(row.setting for row in rows))
    networks = list(dict.fromkeys(row.summary.topology for row in rows))
    figure = new_figure(9, 3.6)
    left, right = figure.subplots(1, 2, sharey=True)
    width = 0.8 / len(networks)
    for k, network in enumerate(networks):
        mine = [row.summary for row in rows if row.summary.topology == network]
        at = [place + width * (k - (len(networks) - 1) / 2) for place in range(len(mine))]
        colour = COLOURS[k % len(COLOURS)]
        left.barh(at, [one.waited_us / 1e6 for one in mine], 0.9 * width, label=network, color=colour)
        right.barh(at, [one.slowdown for one in mine], 0.9 * width, color=colour)
    left.set_yticks(range(len(labels)), labels)
    left.set_xlabel("mean time waited [s]")
    right.set_xlabel("mean time of an iteration over that on an empty cluster")
    left.legend()
    left.invert_yaxis()
    return figure
