"""Where twice the bandwidth makes an iteration longer.

    python benchmarks/bandwidth_doublings.py             # simulate, and write docs/results/doublings.csv
    python docs/results.py                               # the list in docs/electrical.md of it

Every bundled network, from 128 Gbps to 8 Tbps a GPU, twice as much each time. Takes half a minute alone.
"""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from sipml_core.cases import Case, Clock, Reuse, simulate_variants
from sipml_core.errors import InfeasibleError
from sipml_core.experiment import read_experiment
from sipml_core.model import CaseResult
from sipml_core.plugin import Registry, load

BANDWIDTHS_GBPS = (128, 256, 512, 1024, 2048, 4096, 8192)
ALLOWED = 1.02
RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results" / "doublings.csv"
#: Links of the `graph`: leaves of 8 GPUs, each with two links of four GPUs' bandwidth to two spines.
LEAF_GPUS, SPINES, UPLINK_IN_GPUS = 8, 2, 2

GPT = {"name": "gpt", "layers": 1, "hidden": 1024, "heads": 16, "sequence": 512, "vocabulary": 1000}
#: Model, GPUs, degrees of model parallelism, global batch.
JOBS: dict[str, tuple[dict[str, Any], int, tuple[int, ...], int]] = {
    "gpt 1 x 1024": (GPT, 32, (16, 4), 32),
    "resnet50": ({"name": "resnet50"}, 32, (1, 4), 128),
}
NETWORKS = ("elect-flat", "elect-cluster", "graph", "sip-ocs", "sip-ring")


@attrs.frozen(kw_only=True)
class Doubling:
    """One network and job at some bandwidth and at twice that."""

    job: str
    mp: int
    layout: str
    network: str
    #: The lower of the two. [Gbps]
    gbps: float
    slow: CaseResult
    fast: CaseResult

    @property
    def ratio(self) -> float:
        """Time at twice the bandwidth over time before."""
        return self.fast.measured_us / self.slow.measured_us


def doublings(registry: Registry, folder: Path, jobs: Any = None) -> Iterator[Doubling]:
    """Yield every doubling of every job on every network."""
    for label, (model, gpus, degrees, batch) in (jobs or JOBS).items():
        for mp in degrees:
            for layout in ("auto", "tensor") if mp > 1 else ("auto",):
                for network in NETWORKS:
                    plan = {"mp": mp, "dp": gpus // mp, "global_batch": batch, "layout": layout}
                    rows = [
                        row_at(registry, folder, {**model, "strategy": plan}, network, gpus, gbps)
                        for gbps in BANDWIDTHS_GBPS
                    ]
                    for gbps, slow, fast in zip(BANDWIDTHS_GBPS, rows, rows[1:], strict=False):
                        if slow is not None and fast is not None:
                            yield Doubling(
                                job=label,
                                mp=mp,
                                layout=layout,
                                network=network,
                                gbps=gbps,
                                slow=slow,
                                fast=fast,
                            )


def row_at(
    registry: Registry, folder: Path, model: dict[str, Any], network: str, gpus: int, gbps: float
) -> CaseResult | None:
    """Return the row of one job on one network at one bandwidth; None where it cannot run."""
    table: dict[str, Any] = {"name": network}
    if network == "graph":
        table["file"] = str(leaves_and_spines(folder, gpus, gbps))
    experiment = read_experiment(
        {
            "title": "doublings",
            "cluster": {"gpus": gpus, "bandwidth_gbps": gbps},
            "engine": {"fold": "auto"},
            "workload": model,
            "topology": table,
        },
        registry,
    )
    job, interconnect = experiment.jobs[0], experiment.interconnects[0]
    try:
        case = Case.of(experiment, job, interconnect, job.plan(gpus))
        return simulate_variants(case, Reuse(), Clock()).row
    except InfeasibleError:
        return None


def leaves_and_spines(folder: Path, gpus: int, gbps: float) -> Path:
    """Write the links of a network of two levels, oversubscribed two to one; return the file."""
    path = folder / f"leaves_{gpus}_{gbps:g}.csv"
    edges = [(f"gpu{gpu}", f"leaf{gpu // LEAF_GPUS}", gbps) for gpu in range(gpus)]
    for leaf in range(-(-gpus // LEAF_GPUS)):
        edges += [(f"leaf{leaf}", f"spine{spine}", UPLINK_IN_GPUS * gbps) for spine in range(SPINES)]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("from", "to", "gbps"), *edges])
    return path


def record(doubling: Doubling) -> dict[str, Any]:
    """Return a row of docs/results/doublings.csv."""
    return {
        "network": doubling.network, "job": doubling.job, "mp": doubling.mp, "layout": doubling.layout,
        "gbps": doubling.gbps, "slow_us": f"{doubling.slow.measured_us:.6g}",
        "fast_us": f"{doubling.fast.measured_us:.6g}", "slow_exchange": doubling.slow.exchange,
        "fast_exchange": doubling.fast.exchange,
    }  # fmt: skip


def main() -> None:
    """Simulate all, and write them."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [record(doubling) for doubling in doublings(load(), Path(folder))]
    with RESULTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
