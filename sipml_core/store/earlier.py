"""Earlier runs of an experiment, and those of now for later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from sipml_core.cases import Attempt, Comparison
from sipml_core.experiment import Experiment
from sipml_core.fields import frozen
from sipml_core.model import CaseResult
from sipml_core.store.keys import trial_keys
from sipml_core.store.resultstore import Record, ResultStore

_COLUMNS = {field.name for field in attrs.fields(CaseResult)}


@frozen
class EarlierRuns:
    """What a store has of the cases of an experiment; what could not run is tried again."""

    store: ResultStore
    experiment: Experiment
    #: Further findings that a run is asked for; one that was kept without them is simulated again.
    details: tuple[str, ...] = ()

    def find(self, comparison: Comparison, attempt: Attempt) -> Mapping[str, Any] | None:
        """Return the row of an attempt, as plain values, if it ran before."""
        record = self.store.get(self._key(comparison, attempt), self.details)
        return record.answer if record is not None and set(record.answer) == _COLUMNS else None

    def keep(self, comparison: Comparison, attempt: Attempt, outcome: Mapping[str, Any]) -> None:
        """Keep the row of an attempt."""
        candidate = attempt.candidate
        about = f"{comparison.name}, mp {candidate.mp}, dp {candidate.dp}, batch {candidate.global_batch}"
        record = Record(kind="simulation", answer=dict(outcome), about=about)
        self.store.put(self._key(comparison, attempt), record)

    def _key(self, comparison: Comparison, attempt: Attempt) -> str:
        keys = trial_keys("simulation", self.experiment, attempt.candidate, comparison.interconnect)
        return keys.answer
