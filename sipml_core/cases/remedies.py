"""What would shorten a case: the same tasks simulated again, with one thing about network or GPUs changed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.cases.case import Case
from sipml_core.cases.clock import Clock
from sipml_core.cases.comparing import comparisons
from sipml_core.cases.preparation import CompiledCase
from sipml_core.cases.reuse import Reuse
from sipml_core.cases.simulating import prepared_variants, simulate_case
from sipml_core.engine import CircuitSettings
from sipml_core.errors import ConfigError, SipmlError
from sipml_core.experiment import Experiment
from sipml_core.fields import frozen
from sipml_core.model import SILENT, CaseResult, Progress
from sipml_core.scheduling import ScheduledCircuits

#: Of kinds of links that take a part in what is waited for, so many are tried.
LINKS_TRIED = 3
#: A network that is as good as infinitely fast.
_FREE = 1e6


@frozen(kw_only=True)
class Remedy:
    """One thing that would be different."""

    name: str
    change: Callable[[CompiledCase], CompiledCase]


@frozen(kw_only=True)
class Gain:
    """What one thing would change, by simulation."""

    name: str
    #: [us]
    iteration_us: float
    #: Part of the iteration that it saves; negative where it takes longer.
    saved: float


class _AlteredCircuits(ScheduledCircuits):
    """Circuits that carry a multiple of what is planned, or are never dark."""

    def __init__(
        self, base: ScheduledCircuits, factor: NDArray[np.float64] | float = 1.0, *, instant: bool = False
    ) -> None:
        self.__dict__.update(base.__dict__)
        self._factor, self._instant = factor, instant

    def decide(
        self, now_us: float, sent_bytes: NDArray[np.float64], backlog_bytes: NDArray[np.float64]
    ) -> CircuitSettings | None:
        """Return what the driver decides, altered."""
        settings = super().decide(now_us, sent_bytes, backlog_bytes)
        if settings is None:
            return None
        kept_gbps = settings.gbps if self._instant else settings.kept_gbps
        return CircuitSettings(
            gbps=settings.gbps * self._factor, kept_gbps=kept_gbps * self._factor, dark_us=settings.dark_us
        )


def faster_links(links: NDArray[np.intp] | None, factor: float) -> Callable[[CompiledCase], CompiledCase]:
    """Return the change that gives links of the network a multiple of their capacity; None: all of them."""

    def change(compiled: CompiledCase) -> CompiledCase:
        network = compiled.work_network
        times = np.full(len(network.link_gbps), factor if links is None else 1.0)
        if links is not None:
            times[links] = factor
        circuits = compiled.circuits
        if circuits is not None and (times[network.first_circuit :] != 1).any():
            circuits = _AlteredCircuits(circuits, times[network.first_circuit :])
        faster = attrs.evolve(network, link_gbps=network.link_gbps * times)
        return attrs.evolve(compiled, work_network=faster, circuits=circuits)

    return change


def never_dark(compiled: CompiledCase) -> CompiledCase:
    """Return a case whose circuits are set in no time."""
    assert compiled.circuits is not None
    return attrs.evolve(compiled, circuits=_AlteredCircuits(compiled.circuits, instant=True))


def no_latency(compiled: CompiledCase) -> CompiledCase:
    """Return a case whose bytes arrive when they leave."""
    network = compiled.work_network
    at_once = attrs.evolve(network, pair_latency_us=np.zeros_like(network.pair_latency_us))
    return attrs.evolve(compiled, work_network=at_once)


def balanced_gpus(compiled: CompiledCase) -> CompiledCase:
    """Return a case in which every GPU computes as long as they do in the mean, its tasks in proportion."""
    compiled = compiled.explicit()
    tasks = compiled.tasks
    real = tasks.gpu >= 0
    busy_us = np.bincount(tasks.gpu[real], tasks.duration_us[real], minlength=tasks.gpus)
    mean_us = busy_us[compiled.simulated].mean()
    scale = np.divide(mean_us, busy_us, out=np.ones_like(busy_us), where=busy_us > 0)
    duration_us = np.where(real, tasks.duration_us * scale[tasks.gpu], tasks.duration_us)
    return attrs.evolve(compiled, work=attrs.evolve(tasks, duration_us=duration_us))


def faster_gpus(compiled: CompiledCase) -> CompiledCase:
    """Return a case whose tasks take half as long."""
    compiled = compiled.explicit()
    tasks = compiled.tasks
    return attrs.evolve(compiled, work=attrs.evolve(tasks, duration_us=tasks.duration_us / 2))


def alike(name: str) -> str:
    """Return the name of a link without its numbers.

    >>> alike("uplink of server 12"), alike("circuit 0->4")
    ('uplink of server *', 'circuit *->*')
    """
    return re.sub(r"\d+", "*", name)


def usual_remedies(compiled: CompiledCase, links: Sequence[tuple[str, int]]) -> list[Remedy]:
    """Return what is tried of a case.

    Parameters
    ----------
    links
        Name and number in the network of those that hold the most back, the first first.
    """
    found = [
        Remedy(name=f"twice the bandwidth of {name}", change=faster_links(np.array([number]), 2.0))
        for name, number in links[:1]
    ]
    # Links are alike whose names differ in numbers only: "uplink of server 0", "uplink of server 1".
    every = [alike(compiled.fabric.link_name(link)) for link in compiled.work_network.link_id.tolist()]
    first_of = {alike(name): name for name, _ in reversed(links)}
    kinds = list(dict.fromkeys(alike(name) for name, _ in links))
    for kind in kinds[:LINKS_TRIED]:
        like = np.flatnonzero(np.array(every) == kind)
        if len(like) > 1:
            name = f"twice the bandwidth of {first_of[kind]} and the {len(like) - 1} like it"
            found.append(Remedy(name=name, change=faster_links(like, 2.0)))
    found.append(Remedy(name="twice the bandwidth of every link", change=faster_links(None, 2.0)))
    if compiled.circuits is not None and compiled.circuits.interval_us is not None:
        found.append(Remedy(name="no reconfiguration: circuits are set in no time", change=never_dark))
    if compiled.work_network.pair_latency_us.any():
        found.append(Remedy(name="no latency", change=no_latency))
    found.append(Remedy(name="GPUs that compute equally long", change=balanced_gpus))
    found.append(Remedy(name="GPUs twice as fast", change=faster_gpus))
    found.append(Remedy(name="a network without any limit", change=faster_links(None, _FREE)))
    return found


def case_of(experiment: Experiment, row: CaseResult) -> Case:
    """Return the case that a row of an experiment is of.

    Raises
    ------
    ConfigError
        The experiment has none.
    """
    for comparison in comparisons(experiment):
        if (comparison.job.label, comparison.interconnect.label) != (row.workload, row.topology):
            continue
        for attempt in comparison.attempts:
            plan = attempt.candidate
            if attempt.case and (plan.mp, plan.dp, plan.global_batch) == (row.mp, row.dp, row.global_batch):
                return attempt.case
    raise ConfigError(f"the experiment has no case {row.workload} on {row.topology} with mp={row.mp}")


def gains(
    case: Case, row: CaseResult, links: Sequence[tuple[str, int]], progress: Progress = SILENT
) -> list[Gain]:
    """Return what each of the usual remedies would save, by simulation, the best first.

    Raises
    ------
    SipmlError
        The case does not compile as it did.
    """
    reuse = Reuse()
    found = []
    which = _variant_of(case, row, reuse)
    count = len(usual_remedies(prepared_variants(case, reuse)[which].compiled(), links))
    for number in range(count):
        # Compiled afresh: who plans circuits remembers the run before.
        compiled = prepared_variants(case, reuse)[which].compiled()
        remedy = usual_remedies(compiled, links)[number]
        part = progress.part(number, of=count).named(remedy.name)
        iteration_us = simulate_case(remedy.change(compiled), Clock(), part).row.measured_us
        saved = 1 - iteration_us / row.measured_us
        found.append(Gain(name=remedy.name, iteration_us=iteration_us, saved=saved))
    return sorted(found, key=lambda gain: -gain.saved)


def _variant_of(case: Case, row: CaseResult, reuse: Reuse) -> int:
    """Return which variant of a case a row is of: the one that runs in the same time."""
    variants = prepared_variants(case, reuse)
    alike = [
        number
        for number, each in enumerate(variants)
        if (each.plan.exchange, each.plan.all_reduce) == (row.exchange, row.all_reduce)
    ]
    if not alike:
        raise SipmlError(f"{case.name} has no variant with exchange {row.exchange!r} any more")
    if len(alike) == 1:
        return alike[0]

    # They differ in how ops are cut, or in what circuits are planned for.
    def apart_us(number: int) -> float:
        found = simulate_case(variants[number].compiled(), Clock(), timeline=False)
        return abs(found.row.measured_us - row.measured_us)

    return min(alike, key=apart_us)
