"""An experiment checked without simulating: what would run, and why the rest would not."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from sipml_core.cases.case import Case
from sipml_core.cases.comparing import comparisons
from sipml_core.cases.reuse import Reuse
from sipml_core.cases.simulating import prepared_variants
from sipml_core.errors import ConfigError, SipmlError
from sipml_core.experiment import Experiment
from sipml_core.fields import frozen


@frozen(kw_only=True)
class Check:
    """What `check_experiment` found about one workload on one interconnect."""

    name: str
    #: Degrees that can run.
    degrees: tuple[tuple[int, int], ...]
    #: Why the last of the others cannot.
    reason: str = ""

    @property
    def fits(self) -> bool:
        """Whether any plan can run."""
        return bool(self.degrees)

    @property
    def line(self) -> str:
        """Return the finding as a sentence."""
        if not self.fits:
            return f"{self.name}: cannot run: {self.reason}"
        return f"{self.name}: mp x dp = {', '.join(f'{mp} x {dp}' for mp, dp in self.degrees)}"


def check_experiment(experiment: Experiment) -> Iterator[Check]:
    """Prepare every case as `run_experiment` would, and yield what would run.

    Raises
    ------
    ConfigError
        As `run_experiment`.
    """
    reuse = Reuse()
    for comparison in comparisons(experiment):
        ready: list[tuple[int, int]] = []
        for attempt in comparison.attempts:
            if attempt.case is None:
                continue
            try:
                plan = prepared_variants(_in_one_round(attempt.case), reuse)[0].plan
                ready.append((plan.mp, plan.dp))
            except ConfigError:
                raise
            except SipmlError as error:
                attempt.end(error)
        reasons = [attempt.reason for attempt in comparison.attempts if attempt.reason]
        yield Check(
            name=comparison.name,
            degrees=tuple(ready),
            reason=reasons[-1] if reasons and not ready else "",
        )


def _in_one_round(case: Case) -> Case:
    """Return the case with the layouts of the first round: what can run with these can run."""
    interconnect = case.interconnect
    keys = attrs.evolve(interconnect.circuit_keys, rounds=1)
    return attrs.evolve(case, interconnect=attrs.evolve(interconnect, circuit_keys=keys))
