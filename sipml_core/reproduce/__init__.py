"""The studies of the paper, as sweeps.

In: names of studies. Out: a `Finding` each.
Imports `sweeping` and what is below it.
"""

from sipml_core.reproduce.numbers import Finding, Verdict, carry_out
from sipml_core.reproduce.study import study_names, study_text

__all__ = ["Finding", "Verdict", "carry_out", "study_names", "study_text"]
