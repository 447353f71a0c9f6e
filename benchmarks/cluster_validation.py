"""Measured throughput of V100 clusters against whole simulations.

    python benchmarks/cluster_validation.py              # simulate, and write docs/results/validation.csv
    python docs/results.py                               # the page docs/validation.md of it

The rows of dlperf_v100.csv, whose source stands beside each, on servers as they are wired; then with one
assumption changed at a time. GPU efficiencies come from the rows of one GPU (docs/gpu-models.md), bandwidths
from data sheets; nothing is fitted to the rows of several GPUs. About three minutes.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from sipml_core.cases import Case, Clock, Reuse, simulate_variants
from sipml_core.errors import SipmlError
from sipml_core.experiment import read_experiment
from sipml_core.plugin import Registry, load

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples"
RESULTS = HERE.parent / "docs" / "results" / "validation.csv"

#: Servers as they are wired, by number of GPUs.
WIRED = {8: "v100_cube_mesh.csv", 16: "v100_cube_mesh_pair.csv"}
EXCHANGES = ("direct", "chain", "ring", "tiers", "link-trees")
ALL_REDUCES = ("flat", "two-tier", "rings")
BASE = "as wired, gradients at the end"


@attrs.frozen(kw_only=True)
class Measured:
    """A row of dlperf_v100.csv."""

    case: str
    gpus: int = attrs.field(converter=int)
    layers: int = attrs.field(converter=int)
    hidden: int = attrs.field(converter=int)
    heads: int = attrs.field(converter=int)
    sequence: int = attrs.field(converter=int)
    vocabulary: int = attrs.field(converter=int)
    global_batch: int = attrs.field(converter=int)
    mp: int = attrs.field(converter=int)
    dp: int = attrs.field(converter=int)
    #: [sequences/s]
    megatron_lm_per_s: float = attrs.field(converter=float)
    oneflow_per_s: float = attrs.field(converter=float)
    source: str


@attrs.frozen(kw_only=True)
class Assumed:
    """What a prediction assumes that the source does not say, or that is an ablation."""

    name: str = BASE
    wired: bool = True
    #: Gradients are synchronised while the backward pass goes on, not all at once when it is over.
    overlapped: bool = False
    layout: str = "megatron"
    exchange: str = "auto"
    all_reduce: str = "auto"
    #: Network card of a server, where servers are switches.
    card_gbps: float = 100.0


@attrs.frozen(kw_only=True)
class Predicted:
    """One simulated case: a row of docs/results/validation.csv."""

    case: str
    assumed: str
    per_s: float
    exchange: str
    all_reduce: str


def measured() -> list[Measured]:
    """Return the measured rows."""
    with (HERE / "dlperf_v100.csv").open(newline="") as file:
        return [Measured(**row) for row in csv.DictReader(file)]


def assumptions(row: Measured) -> Iterator[Assumed]:
    """Yield what is assumed of a row: as we believe it was, then one thing changed at a time."""
    yield Assumed()
    if row.dp > 1:
        yield Assumed(name="gradients overlapped with the backward pass", overlapped=True)
    if row.gpus > 1:
        yield Assumed(name="servers as switches", wired=False)
    if row.gpus > 8:
        yield Assumed(name="servers as switches, cards at 80 Gb/s", wired=False, card_gbps=80.0)
    if row.mp > 1:
        for exchange in EXCHANGES:
            yield Assumed(name=f"exchange `{exchange}`", exchange=exchange)
        yield Assumed(name="layout `tensor`: norms, dropout, residuals divided", layout="tensor")
        yield Assumed(name="the layout sipml chooses", layout="auto")
    if row.dp > 1:
        for all_reduce in ALL_REDUCES:
            yield Assumed(name=f"all-reduce `{all_reduce}`", all_reduce=all_reduce)


def predict(registry: Registry, row: Measured, assumed: Assumed) -> Predicted:
    """Simulate one measured row.

    Raises
    ------
    SipmlError
        An exchange or all-reduce that the network cannot do.
    """
    network: dict[str, Any] = {"name": "elect-cluster", "uplink_gbps": assumed.card_gbps}
    if assumed.wired and row.gpus > 1:
        network = {"name": "graph", "file": str(EXAMPLES / WIRED[row.gpus]), "server_gpus": 8}
    experiment = read_experiment(
        {
            "title": "validation",
            "cluster": {"gpus": row.gpus, "bandwidth_gbps": "150 GB/s"},
            "gpu": {"name": "v100", "memory": "16 GB", "precision": "mixed"},
            "strategy": {
                "mp": row.mp, "dp": row.dp, "global_batch": row.global_batch, "recompute": True,
                "layout": assumed.layout, "exchange": assumed.exchange, "all_reduce": assumed.all_reduce,
                "bucket_bytes": "25 MB" if assumed.overlapped else "1 TB",
            },
            "workload": {
                "name": "gpt", "hidden": row.hidden, "layers": row.layers, "heads": row.heads,
                "sequence": row.sequence, "vocabulary": row.vocabulary,
            },
            "topology": network,
        },
        registry,
    )  # fmt: skip
    job, interconnect = experiment.jobs[0], experiment.interconnects[0]
    case = Case.of(experiment, job, interconnect, job.plan(row.gpus))
    result = simulate_variants(case, Reuse(), Clock()).row
    return Predicted(
        case=row.case,
        assumed=assumed.name,
        per_s=row.global_batch * 1e6 / result.measured_us,
        exchange=result.exchange if row.mp > 1 else "",
        all_reduce=result.all_reduce if row.dp > 1 else "",
    )


def predictions(registry: Registry) -> Iterator[Predicted]:
    """Yield every row under every assumption that its network allows."""
    for row in measured():
        for assumed in assumptions(row):
            try:
                yield predict(registry, row, assumed)
            except SipmlError as error:
                print(f"{row.case}, {assumed.name}: {error}")


def main() -> None:
    """Simulate all, and write them."""
    names = [field.name for field in attrs.fields(Predicted)]
    found = []
    for prediction in predictions(load()):
        print(prediction, flush=True)
        found.append(attrs.asdict(prediction))
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows({**row, "per_s": f"{row['per_s']:.6g}"} for row in found)


if __name__ == "__main__":
    main()
