"""What a scheduler is shown of the next interval's traffic.

In: what was sent and what waits. Out: the demand to expect of each circuit.
Every estimator adds the backlog: a pair without a circuit sends nothing, so that what was sent alone would
never ask for one.
Imports `plugin` and what is below it, and `engine` only while a job runs.
"""

from sipml_core.estimators.oracle import Oracle
from sipml_core.estimators.recent import Backlog, Window

ESTIMATORS = (Window, Backlog, Oracle)

__all__ = ["ESTIMATORS", "Backlog", "Oracle", "Window"]
