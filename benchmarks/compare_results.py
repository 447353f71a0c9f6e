"""Compares the CSV files of two results folders as text, whatever their columns are called.

python benchmarks/compare_results.py BEFORE AFTER

Columns that were renamed are found under their new names, columns that only one side has are named and
left out. Prints a line for each file, and the first rows that differ; exit status 1 if any do.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

#: Old name of a column -> new name. Results of before plugin API 2 have the old ones.
RENAMED = {"collective": "all_reduce"}
#: Rows that are shown of each file that differs.
SHOWN = 3


def read(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file under the new names of their columns."""
    with path.open(newline="", encoding="utf-8") as file:
        return [
            {RENAMED.get(name, name): value for name, value in row.items()} for row in csv.DictReader(file)
        ]


def differences(before: list[dict[str, str]], after: list[dict[str, str]]) -> tuple[list[str], list[str]]:
    """Return what differs in columns that both have, and the columns that only one has.

    >>> differences([{"a": "1", "b": "2"}], [{"a": "3", "c": "2"}])
    (['row 1: a was 1, is 3'], ['b', 'c'])
    """
    names = [set(rows[0]) if rows else set() for rows in (before, after)]
    common, alone = names[0] & names[1], sorted(names[0] ^ names[1])
    found = [] if len(before) == len(after) else [f"{len(before)} rows before, {len(after)} after"]
    for number, (old, new) in enumerate(zip(before, after, strict=False), start=1):
        found += [
            f"row {number}: {name} was {old[name]}, is {new[name]}"
            for name in old
            if name in common and old[name] != new[name]
        ]
    return found, alone


def main(before: Path, after: Path) -> int:
    """Print the comparison; return 1 if a file is missing on one side or differs."""
    status = 0
    files = [{path.name for path in folder.glob("*.csv")} for folder in (before, after)]
    for name in sorted(files[0] | files[1]):
        if name not in files[0] & files[1]:
            print(f"{name}: only {'before' if name in files[0] else 'after'}")
            status = 1
            continue
        found, alone = differences(read(before / name), read(after / name))
        left_out = f" (left out: {', '.join(alone)})" if alone else ""
        print(f"{name}: {f'{len(found)} differences' if found else 'equal'}{left_out}")
        for line in found[:SHOWN]:
            print(f"  {line}")
        status = 1 if found else status
    return status


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit("usage: python benchmarks/compare_results.py BEFORE AFTER")
    raise SystemExit(main(Path(sys.argv[1]), Path(sys.argv[2])))
