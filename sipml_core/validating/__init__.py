"""Predictions held against what others measured.

In: rows of `data`, with their sources. Out: predicted, measured, error of each row, or why it cannot be run.
Imports the store, the steps of a case and what is below them.
"""

from sipml_core.validating.footprints import Footprint, footprints
from sipml_core.validating.rows import MeasuredRow
from sipml_core.validating.suite import ErrorSummary, Prediction, measured_rows, predict, predictions

__all__ = [
    "ErrorSummary",
    "Footprint",
    "MeasuredRow",
    "Prediction",
    "footprints",
    "measured_rows",
    "predict",
    "predictions",
]
