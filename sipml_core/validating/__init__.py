"""Predictions held against what others measured: cases, their conditions, errors.

In: rows of `data`, with their sources. Out: predicted, measured, error for each row, or why it cannot be run.
Imports the steps of a case, `searching` for workers, and what is below them.
"""
