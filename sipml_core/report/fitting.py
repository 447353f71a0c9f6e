"""Tables that fit a terminal: less important columns are left out, and nothing that stands is cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

#: Of a cell, what its borders and padding take.
_BORDER = 3


def fitted(
    title: str,
    headings: Sequence[str],
    rows: Sequence[Mapping[str, str]],
    *,
    width: int,
    drop: Sequence[str] = (),
    left: Sequence[str] = (),
    caption: str = "",
    bold: Sequence[bool] = (),
) -> Table:
    """Return a table of at most `width` characters.

    Parameters
    ----------
    rows
        Cells by heading, as they are: text from users is no markup.
    drop
        Headings that are left out one by one, in this order, until the rest fits. If it still does not,
        cells go over several lines.
    left
        Headings whose cells stand on the left.
    bold
        Rows that stand out.
    """
    taken = {head: _BORDER + max(cell_len(text) for text in _column(head, rows)) for head in headings}
    shown = list(headings)
    for heading in drop:
        if 1 + sum(taken[head] for head in shown) <= width:
            break
        if heading in shown:
            shown.remove(heading)
    table = Table(
        title=Text(title), title_justify="left", caption=Text(caption) if caption else None,
        caption_justify="left",
    )  # fmt: skip
    for heading in shown:
        table.add_column(
            Text(heading), justify="left" if heading in left else "right", overflow="fold", min_width=1
        )
    for number, row in enumerate(rows):
        style = "bold" if number < len(bold) and bold[number] else None
        table.add_row(*(Text(row[heading]) for heading in shown), style=style)
    return table


def _column(heading: str, rows: Sequence[Mapping[str, str]]) -> list[str]:
    return [line for row in rows for line in row[heading].splitlines()] + heading.splitlines()
