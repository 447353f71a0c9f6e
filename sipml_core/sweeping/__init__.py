"""One experiment at many points: every combination of the values of its axes.

In: a TOML file of axes, or an experiment and values. Out: a `SweepResult`, a row for each run.
Imports `searching` and what is below it.
"""

from sipml_core.sweeping.figurenumbers import QUANTITIES, Number, number_of
from sipml_core.sweeping.points import Point, SweepPoint
from sipml_core.sweeping.seriesrows import Series, series_row
from sipml_core.sweeping.sweepfile import (
    FigureTable,
    Sweep,
    file_name,
    read_sweep,
    with_alternatives,
    with_axes,
    with_figure,
)
from sipml_core.sweeping.sweepresult import SweepResult, SweepRow
from sipml_core.sweeping.sweepruns import DEFAULT_LIMIT, carry_out_sweep, line_name

__all__ = [
    "DEFAULT_LIMIT",
    "QUANTITIES",
    "FigureTable",
    "Number",
    "Point",
    "Series",
    "Sweep",
    "SweepPoint",
    "SweepResult",
    "SweepRow",
    "carry_out_sweep",
    "file_name",
    "line_name",
    "number_of",
    "read_sweep",
    "series_row",
    "with_alternatives",
    "with_axes",
    "with_figure",
]
