"""What a case leaves for details: which decisions its circuits took, and a record of everything else."""

from __future__ import annotations

import attrs
import numpy as np

from sipml_core.cases.preparation import CompiledCase
from sipml_core.cases.watcheddriver import WatchedDriver
from sipml_core.engine import CircuitSettings, Recording, lower_bound_us
from sipml_core.lowering import task_origins
from sipml_core.model import CaseRecord, CircuitDecision, Images, Timeline
from sipml_core.scheduling import ScheduledCircuits

#: Samples of all links together, at most; and of each.
_SAMPLES, _LEAST, _MOST = 8_000_000, 16, 512
#: Plans that are kept with their resources: when there are more, every second goes.
PLANS_KEPT = 256


class DecisionLog(WatchedDriver):
    """A driver of circuits that takes note of what each of its decisions changes."""

    def __init__(self, driver: ScheduledCircuits) -> None:
        super().__init__(driver)
        self._scheduled = driver
        self._gbps = np.zeros(len(driver.network.circuit_src))
        self.decisions: list[CircuitDecision] = []
        self._plan_every = 1

    def decided(self, now_us: float, settings: CircuitSettings) -> None:
        """See `WatchedDriver.decided`."""
        dark = (settings.dark_us > 0) & (settings.kept_gbps < settings.gbps)
        changed = np.flatnonzero((settings.gbps != self._gbps) | dark)
        self.decisions.append(
            CircuitDecision(
                at_us=now_us,
                circuit=changed,
                before_gbps=self._gbps[changed],
                after_gbps=settings.gbps[changed],
                kept_gbps=settings.kept_gbps[changed],
                dark_us=np.where(dark, settings.dark_us, 0.0)[changed],
                plan=self._scheduled.plan if len(self.decisions) % self._plan_every == 0 else None,
            )
        )
        if len(self.decisions) >= PLANS_KEPT * self._plan_every:
            self._plan_every *= 2
            self.decisions = [
                each if number % self._plan_every == 0 else attrs.evolve(each, plan=None)
                for number, each in enumerate(self.decisions)
            ]
        self._gbps = settings.gbps.copy()


def recording_of(compiled: CompiledCase) -> Recording:
    """Return how a case is recorded: as many samples of its links as fit a bound of memory."""
    links = max(1, len(compiled.network.link_gbps))
    samples = int(np.clip(_SAMPLES // links, _LEAST, _MOST)) // 2 * 2
    bound_us = lower_bound_us(compiled.tasks, compiled.network)
    return Recording(samples=samples, sample_us=max(bound_us / samples, 1e-6))


def case_record(compiled: CompiledCase, timeline: Timeline, log: DecisionLog | None) -> CaseRecord:
    """Return all that details are made of; `timeline` was recorded."""
    job, plan, folded = compiled.case.job, compiled.plan, compiled.folded
    lowering = compiled.lowering
    origins = task_origins(lowering, compiled.tasks, len(compiled.simulated) // plan.replica_gpus)
    # Place of each GPU: replica, stage, device. [gpus]
    place = np.empty((3, plan.gpus), dtype=np.int32)
    place[:, lowering.gpu_of] = np.indices((plan.replicas, plan.pp, plan.mp)).reshape(
        3, *lowering.gpu_of.shape
    )
    fabric = compiled.fabric
    return CaseRecord(
        workload=job.label,
        topology=compiled.case.interconnect.label,
        queue=compiled.case.engine.queue,
        iterations=plan.iterations,
        tasks=compiled.tasks,
        network=compiled.network,
        timeline=timeline,
        replica=place[0],
        stage=place[1],
        device=place[2],
        **attrs.asdict(origins),
        link_name=fabric.link_name,
        link_tail=fabric.link_tail,
        link_head=fabric.link_head,
        decisions=tuple(log.decisions) if log else (),
        images=None
        if folded is None
        else Images(
            count=compiled.repeats,
            shift=len(compiled.simulated),
            gpu_at=lowering.gpu_of.reshape(-1),
            pair_dst=folded.pair_dst,
            link_id=folded.whole_id,
            link_image=folded.whole_image,
            link_orbit=folded.whole_orbit,
            link_share=folded.whole_share,
        ),
    )
