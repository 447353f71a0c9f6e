"""What it gains to choose layout and circuits in turn, and how far that is from the best layout of all.

    python benchmarks/layout_rounds.py [--out FOLDER]      # a few minutes
    python docs/results.py                                 # the table of docs/circuit-planning.md

layout_rounds.csv: 16 V100s, mp 4, iteration in one round and in up to six; on circuits that are set once the
fastest of all layouts that any of 36 pairs of prices choose as well. Prices are what a GPU gets to send
inside its group, and to its counterparts: its bandwidth, a half of it, a quarter, ..., a 32nd.
"""

from __future__ import annotations

import argparse
import csv
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sipml_core as sipml
from sipml_core.cases import Case, Clock, PreparedCase, Reuse, fastest_prepared
from sipml_core.cases.compilation import prepared_by_rules
from sipml_core.cases.steps import built_fabric, network_prices
from sipml_core.cases.variants import group_shape, offered_exchanges, variants_of
from sipml_core.errors import InfeasibleError
from sipml_core.experiment import read_experiment
from sipml_core.model import Prices
from sipml_core.plugin import load

JOBS: dict[str, dict[str, Any]] = {
    "Transformer, batch 16": {"name": "transformer", "strategy": {"global_batch": 16}},
    "ResNet-50, batch 64": {"name": "resnet50", "strategy": {"global_batch": 64}},
    "GPT (4 layers, hidden 1024), batch 16": {
        "name": "gpt", "layers": 4, "hidden": 1024, "strategy": {"global_batch": 16},
    },
}  # fmt: skip
NETWORKS = {
    "SiP-OCS, set once": {"name": "sip-ocs"},
    "SiP-Ring, reach 6": {"name": "sip-ring", "reach_hops": 6},
}
BANDWIDTHS_GBPS = (250, 1000, 4000)
PARTS = tuple(2.0**-k for k in range(6))


def main() -> None:
    """Measure all, and write them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    asked = parser.parse_args()
    with (asked.out / "layout_rounds.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("job", "network", "bandwidth_gbps", "once_us", "in_turn_us", "best_us"))
        for (job, workload), (network, topology), gbps in itertools.product(
            JOBS.items(), NETWORKS.items(), BANDWIDTHS_GBPS
        ):
            once, in_turn = sipml.run(tables(workload, gbps, topology, {**topology, "rounds": 6})).rows()
            best = best_us(tables(workload, gbps, topology)) if network == "SiP-OCS, set once" else ""
            table.writerow((job, network, gbps, once["iteration_us"], in_turn["iteration_us"], best))
            file.flush()


def tables(workload: dict[str, Any], gbps: float, *topologies: dict[str, Any]) -> dict[str, Any]:
    """Return the experiment of one job on some networks."""
    return {
        "title": "layout-rounds",
        "cluster": {"gpus": 16, "bandwidth_gbps": gbps},
        "workload": {**workload, "strategy": {**workload["strategy"], "mp": 4}},
        "topology": [{**each, "label": str(number)} for number, each in enumerate(topologies)],
    }


def best_us(experiment_tables: dict[str, Any]) -> float:
    """Return the iteration with the fastest of the layouts that any pair of prices chooses. [us]"""
    experiment = read_experiment(experiment_tables, load())
    (job,), (interconnect,) = experiment.jobs, experiment.interconnects
    case = Case.of(experiment, job, interconnect, job.plan(interconnect.cluster.gpus))
    return fastest_prepared(list(layouts(case)), Clock(None))[1]


def layouts(case: Case) -> Iterator[PreparedCase]:
    """Yield the case with each layout that a pair of prices chooses, with each exchange, once."""
    reuse, seen = Reuse(), set()
    cluster = case.interconnect.cluster
    fabric = built_fabric(case.interconnect.topology, cluster)
    gpu_gbps = cluster.bandwidth_gbps
    group = group_shape(fabric, case.plan, network_prices(fabric, case.plan, gpu_gbps), gpu_gbps)
    for exchange, inside, outside in itertools.product(offered_exchanges(case, group), PARTS, PARTS):
        prices = Prices(group_gbps=gpu_gbps * inside, replica_gbps=gpu_gbps * outside)
        try:
            variants = variants_of(case, fabric, exchange, group, prices, reuse)
            made = [each for variant in variants for each in prepared_by_rules(variant, reuse)]
        except InfeasibleError:
            continue
        for prepared in made:
            graph = prepared.variant.placement.graph
            layout = tuple(graph.split_dim), tuple(graph.parts.tolist()), tuple(graph.duplicated)
            key = exchange.name, prepared.variant.plan.all_reduce, layout
            if key not in seen:
                seen.add(key)
                yield prepared


if __name__ == "__main__":
    main()
