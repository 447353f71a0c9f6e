"""The studies of the paper, as series of experiments.

In: names of studies. Out: a `Finding` each.
Imports `search` and what is below it.
"""

from sipml_core.reproduce.numbers import Finding, Number, Verdict, carry_out
from sipml_core.reproduce.study import study_names

__all__ = ["Finding", "Number", "Verdict", "carry_out", "study_names"]
