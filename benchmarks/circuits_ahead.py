"""What circuits ahead of need gain: plans of phases with and without circuits for the phase after.

    python benchmarks/circuits_ahead.py [--out FOLDER]
    python docs/results.py                  # the table in docs/circuit-planning.md

circuits_ahead.csv: the iteration of the jobs of circuit_phases.py, by `replan` and dark time, with schedulers
that give what a plan leaves idle to the next phase (`PlansAhead`), and with the same that do not; and of the
models of the study `reconfiguration` at its least bandwidth, by phase. Mixed precision, direct exchange. A
minute of a core.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs
from circuit_phases import JOBS, Job, ocs, ring, rows_of, told
from sipml_ocs.ocsnetwork import OcsExact
from sipml_ring.ringschedulers import RingFast

from sipml_core.model import CaseResult, CircuitControl, CircuitPlan, TrafficMatrix, TreatsAlike
from sipml_core.plugin import Registry, Scheduler, hookimpl, load

LATENCIES_US = [1.0, 20.0, 100.0, 1000.0, 10_000.0]
WAYS = ("phase", "stage", "kind")


class OcsNow(Scheduler):
    """`ocs-exact`, for what is sent now alone."""

    name = "ocs-now"
    summary = "as ocs-exact, not ahead"
    plans = OcsExact.plans

    def plan(
        self, control: CircuitControl, traffic: TrafficMatrix, previous: CircuitPlan | None
    ) -> CircuitPlan:
        return OcsExact(None).plan(control, traffic, previous)


class RingNow(TreatsAlike, Scheduler):
    """`ring-fast`, for what is sent now alone."""

    name = "ring-now"
    summary = "as ring-fast, not ahead"
    plans = RingFast.plans

    def plan(
        self, control: CircuitControl, traffic: TrafficMatrix, previous: CircuitPlan | None
    ) -> CircuitPlan:
        return RingFast(None).plan(control, traffic, previous)


#: Who plans a network without what comes later.
NOW: dict[str, type[Scheduler]] = {"sip-ocs": OcsNow, "sip-ring": RingNow}


@hookimpl
def sipml_schedulers() -> list[type[Scheduler]]:
    """Offer both."""
    return list(NOW.values())


def study_jobs() -> Iterator[Job]:
    """Yield the jobs of the study `reconfiguration` at 250 Gbps."""
    models = {
        "ResNet-50": ({"name": "resnet50"}, 512),
        "Transformer": ({"name": "transformer"}, 32),
        "GPT, 8 layers": ({"name": "gpt", "layers": 8, "hidden": 1024, "heads": 16}, 32),
    }
    for model, (workload, batch) in models.items():
        for network in (ocs(16), ring(8)):
            plan = {"mp": 4, "global_batch": batch, "layout": "auto"}
            name = f"{model}, mp 4, fastest of four rules"
            network = {**network, "demand": "auto"}
            yield Job(told=name, workload=workload, gpus=32, gbps=250, plan=plan, network=network)


def times_us(
    registry: Registry, job: Job, ways: tuple[str, ...], folder: Path, **keys: Any
) -> dict[tuple[str, float], CaseResult]:
    """Return the rows of a job by way and dark time."""
    job = attrs.evolve(job, network={**job.network, **keys})
    found: dict[tuple[str, float], CaseResult] = {}
    for row in rows_of(registry, job, LATENCIES_US, folder, ways):
        way, _, latency_us = row.topology.partition(" ")
        if latency_us:
            found[way, float(latency_us)] = row
    return found


def with_plugin() -> Registry:
    """Return all installed plugins and this file."""
    sys.modules.setdefault("circuits_ahead", sys.modules[__name__])
    here = EntryPoint(name="circuits_ahead", value="circuits_ahead", group="sipml")
    return load([*entry_points(group="sipml"), here])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    asked, registry = parser.parse_args(), with_plugin()
    jobs = [*((job, WAYS) for job in JOBS), *((job, ("phase",)) for job in study_jobs())]
    with (
        TemporaryDirectory() as folder,
        (asked.out / "circuits_ahead.csv").open("w", encoding="utf-8", newline="") as file,
    ):
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("job", "replan", "reconfiguration_us", "ahead_us", "now_us"))
        for job, ways in jobs:
            ahead = times_us(registry, job, ways, Path(folder))
            now = times_us(registry, job, ways, Path(folder), scheduler=NOW[job.network["name"]].name)
            for (way, latency_us), row in ahead.items():
                without_us = now[way, latency_us].iteration_us
                table.writerow((told(job), way, latency_us, row.iteration_us or "", without_us or ""))
            file.flush()


if __name__ == "__main__":
    main()
