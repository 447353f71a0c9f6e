"""Rows of docs/results, and tables in Markdown."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1]
RESULTS = DOCS / "results"

Row = dict[str, str]


def rows(name: str) -> list[Row]:
    """Return the rows of a CSV file of docs/results, none if it is not there."""
    path = RESULTS / f"{name}.csv"
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def table(header: Iterable[str], lines: Iterable[Iterable[str]], numbers_from: int = 1) -> str:
    """Return a table in Markdown; columns from `numbers_from` on are flush right."""
    head = list(header)
    rule = ["---" if column < numbers_from else "--:" for column in range(len(head))]
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *lines)) + "\n"


def signed(ratio: float) -> str:
    """Return a deviation in percent.

    >>> signed(1.034), signed(0.9), signed(1.0)
    ('+3.4 %', '-10.0 %', '+0.0 %')
    """
    return f"{ratio - 1:+.1%}".replace("%", " %")


def missing(study: str) -> str:
    """Return what a page says of a study whose results are not in the repository."""
    return f"No results of `{study}` are in docs/results yet.\n"
