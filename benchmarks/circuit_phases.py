"""Circuits set once, re-planned by interval, between phases, and between those of stages and kinds.

    python benchmarks/circuit_phases.py [--reconfiguration-us US ...] [--out FOLDER]

circuit_phases.csv, the table of docs/circuit-planning.md: iteration and number of plans of each job for
several dark times. Mixed precision, direct exchange. SiP-OCS by interval every 5 r, 20 us at least, SiP-Ring
100 us at least.
"""

from __future__ import annotations

import argparse
import csv
import json
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs

from sipml_core.cases import run_experiment
from sipml_core.experiment import read_experiment
from sipml_core.model import CaseResult
from sipml_core.plugin import Registry, load

WAYS = ("interval", "phase", "stage", "kind")


@attrs.frozen(kw_only=True)
class Job:
    told: str
    workload: dict[str, Any]
    #: Of a language model: its configuration, of which so many layers are taken.
    layers: tuple[str, int] | None = None
    gpus: int
    gbps: int
    plan: dict[str, Any]
    gpu: str = "v100"
    network: dict[str, Any]


def ocs(switches: int) -> dict[str, Any]:
    return {"name": "sip-ocs", "switches": switches, "rounds": 1}


def ring(reach_hops: int) -> dict[str, Any]:
    return {"name": "sip-ring", "reach_hops": reach_hops, "rounds": 1}


GPT = {"mp": 2, "pp": 2, "global_batch": 64, "micro_batch": 2, "layout": "auto"}
MIXTRAL = {"mp": 2, "ep": 8, "global_batch": 16, "micro_batch": 1, "recompute": "none", "zero": 1}
LLAMA = {"mp": 2, "cp": 4, "global_batch": 8, "micro_batch": 1, "recompute": "none", "zero": 1}
MEGATRON = {"mp": 4, "pp": 2, "global_batch": 32, "micro_batch": 2}
JOBS = (
    Job(
        told="Mixtral, 4 layers, mp 2, ep 8",
        workload={"name": "hf", "sequence": 2048}, layers=("mixtral-8x7b", 4),
        gpus=16, gbps=800, gpu="h100", plan=MIXTRAL, network=ocs(12),
    ),
    Job(
        told="Mixtral, 4 layers, mp 2, ep 8",
        workload={"name": "hf", "sequence": 2048}, layers=("mixtral-8x7b", 4),
        gpus=16, gbps=3200, gpu="h100", plan=MIXTRAL, network=ring(8),
    ),
    Job(
        told="Mixtral, 4 layers, mp 2, ep 8",
        workload={"name": "hf", "sequence": 2048}, layers=("mixtral-8x7b", 4),
        gpus=16, gbps=800, gpu="h100", plan=MIXTRAL, network=ring(8),
    ),
    Job(
        told="Mixtral, 4 layers, mp 2, pp 2, ep 8",
        workload={"name": "hf", "sequence": 2048}, layers=("mixtral-8x7b", 4),
        gpus=32, gbps=800, gpu="h100", plan={**MIXTRAL, "pp": 2, "global_batch": 64}, network=ocs(12),
    ),
    Job(
        told="Llama 3 8B, 4 layers, mp 2, cp 4",
        workload={"name": "hf", "sequence": 8192}, layers=("llama3-8b", 4),
        gpus=32, gbps=400, gpu="h100", plan=LLAMA, network=ocs(4),
    ),
    Job(
        told="Megatron, 4 layers, mp 4, pp 2",
        workload={"name": "megatron", "layers": 4}, gpus=32, gbps=500, plan=MEGATRON, network=ocs(8),
    ),
    Job(
        told="GPT, 6 layers, mp 2, pp 2",
        workload={"name": "gpt", "layers": 6}, gpus=16, gbps=250, plan=GPT, network=ocs(4),
    ),
    Job(
        told="GPT, 8 layers, mp 4, pp 4",
        workload={"name": "gpt", "layers": 8}, gpus=64, gbps=250, plan={**GPT, "mp": 4, "pp": 4},
        network=ocs(8),
    ),
    Job(
        told="GPT, 4 layers, mp 4",
        workload={"name": "gpt", "layers": 4}, gpus=16, gbps=1000,
        plan={"mp": 4, "global_batch": 16, "layout": "auto"}, network=ring(6),
    ),
    Job(
        told="Transformer, mp 4",
        workload={"name": "transformer"}, gpus=16, gbps=250,
        plan={"mp": 4, "global_batch": 16, "layout": "auto"}, network=ocs(4),
    ),
)  # fmt: skip


def rows_of(
    registry: Registry, job: Job, latencies_us: list[float], folder: Path, ways: tuple[str, ...] = WAYS
) -> tuple[CaseResult, ...]:
    """Return a job with circuits set once, where they can be, then each way at each latency."""
    networks, workload = [], dict(job.workload)
    least_us = 20.0 if job.network["name"] == "sip-ocs" else 100.0
    if job.network["name"] == "sip-ocs":
        once = {key: value for key, value in job.network.items() if key != "scheduler"}
        networks.append({**once, "label": "once"})
    for replan in ways:
        for r in latencies_us:
            times = {"reconfiguration_us": r, "interval_us": max(least_us, 5 * r)}
            networks.append({**job.network, **times, "replan": replan, "label": f"{replan} {r:g}"})
    if job.layers is not None:
        model, layers = job.layers
        named = files("sipml_core.workloads") / "configurations" / f"{model}.json"
        config = json.loads(named.read_text(encoding="utf-8")) | {"num_hidden_layers": layers}
        file = folder / "config.json"
        file.write_text(json.dumps(config), encoding="utf-8")
        workload["file"] = str(file)
    tables = {
        "title": "circuit-phases",
        "cluster": {"gpus": job.gpus, "bandwidth_gbps": job.gbps},
        "gpu": {"name": job.gpu},
        "workload": workload,
        "plan": {**job.plan, "exchange": "direct"},
        "topology": networks,
    }
    return run_experiment(read_experiment(tables, registry)).cases


def told(job: Job) -> str:
    """A job in words."""
    network = job.network
    where = (
        f"{network['switches']} switches" if "switches" in network else f"ring, reach {network['reach_hops']}"
    )
    return f"{job.told}, {job.gpus} GPUs, {where}, {job.gbps} Gbps"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reconfiguration-us", type=float, nargs="+", default=[1, 20, 1000, 10_000])
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    asked = parser.parse_args()
    registry = load()
    with (
        TemporaryDirectory() as folder,
        (asked.out / "circuit_phases.csv").open("w", encoding="utf-8", newline="") as file,
    ):
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("job", "replan", "reconfiguration_us", "iteration_us", "plans"))
        for job in JOBS:
            for row in rows_of(registry, job, asked.reconfiguration_us, Path(folder)):
                way, _, r = row.topology.partition(" ")
                table.writerow((told(job), way, r or 0, row.iteration_us or "", row.decisions or ""))
                file.flush()


if __name__ == "__main__":
    main()
