"""What a sweep found: a row for each run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from sipml_core.errors import ConfigError
from sipml_core.fields import frozen
from sipml_core.model import OK, CaseResult
from sipml_core.searching import SearchRow
from sipml_core.sweeping.figurenumbers import number_of
from sipml_core.sweeping.points import SweepPoint, plain
from sipml_core.sweeping.sweepfile import Sweep


def is_line(label: str, name: str) -> bool:
    """Return whether a line is of a series: called so, with or without values of other axes behind.

    >>> is_line("ring, mp 2", "ring"), is_line("ring", "ring"), is_line("ring 2", "ring")
    (True, True, False)
    """
    return label == name or label.startswith(f"{name}, ")


@frozen(kw_only=True)
class SweepRow:
    """One run: one workload on one interconnect at one point."""

    point: SweepPoint
    #: Line of the figure that it is on.
    series: str
    #: A row of summary.csv, or of search.csv where plans were searched.
    result: CaseResult | SearchRow
    #: Every option as it was resolved, by its key.
    options: Mapping[str, Any]
    seed: int
    version: str
    #: Names the record of the run in the store.
    hash: str

    @property
    def ran(self) -> bool:
        """Whether it was simulated to its end."""
        return self.result.status in (OK, "simulated")

    def record(self) -> dict[str, Any]:
        """Return the row by column: axes, series, result, seed, version, hash, options.

        An axis whose key is an option has its value as it was resolved: 400.0 for "400 Gbps".
        """
        axes = {key: self.options.get(key, value) for key, value in self.point.columns().items()}
        result = {key: plain(value) for key, value in attrs.asdict(self.result).items()}
        if "notes" in result:
            result["notes"] = "; ".join(self.result.notes)  # type: ignore[union-attr]
        own = {"seed": self.seed, "version": self.version, "hash": self.hash}
        return {**axes, "series": self.series, **result, **own, **self.options}


@frozen(kw_only=True)
class SweepResult:
    """A finished sweep."""

    sweep: Sweep
    rows: tuple[SweepRow, ...]

    @property
    def complete(self) -> bool:
        """Whether every run ended well."""
        return all(row.ran for row in self.rows)

    def records(self) -> list[dict[str, Any]]:
        """Return each row by column; what another workload or network has no option of is None."""
        records = [row.record() for row in self.rows]
        columns = dict.fromkeys(column for record in records for column in record)
        return [{column: record.get(column) for column in columns} for record in records]

    def to_frame(self) -> Any:
        """Return the rows as a pandas DataFrame.

        Raises
        ------
        ConfigError
            pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise ConfigError("to_frame needs pandas: python -m pip install pandas") from None
        return pandas.DataFrame(self.records())

    def drawn(self) -> list[dict[str, Any]]:
        """Return what the figure shows, series by series: each row with its place `x`, and `label`."""
        wanted = self.sweep.figure.series if self.sweep.figure else ()
        wanted = wanted or tuple(series.label for series in self.sweep.series)
        labels = dict.fromkeys(row.series for row in self.rows)
        drawn = [label for name in wanted for label in labels if is_line(label, name)] if wanted else labels
        return [
            {**row.record(), **number_of(row.result, label, *self._place(row)).record()}
            for label in dict.fromkeys(drawn)
            for row in self.rows
            if row.series == label
        ]

    def _place(self, row: SweepRow) -> tuple[float, str]:
        return self.sweep.place(row.point, row.options)
