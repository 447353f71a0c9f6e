"""Constants fitted to what a user measured: a communication library's, and a GPU's.

In: output of nccl-tests, CSV files of measured steps. Out: tables of an experiment file, with residuals.
Imports the steps of a case and what is below them.
"""

from sipml_core.calibrating.libraryfit import LibraryFit, fit_library
from sipml_core.calibrating.measurements import MeasuredCall, MeasuredStep, read_measurements
from sipml_core.calibrating.stepfit import StepFit, fit_steps

__all__ = [
    "LibraryFit",
    "MeasuredCall",
    "MeasuredStep",
    "StepFit",
    "fit_library",
    "fit_steps",
    "read_measurements",
]
