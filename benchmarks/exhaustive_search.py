"""How far a search on circuits is from the best of all: every degree with every layout, simulated.

    python benchmarks/exhaustive_search.py [--out FOLDER]
    python docs/results.py                  # the table in docs/circuit-planning.md

exhaustive_search.csv: three products and a loss on 8 V100s, by degree: the iteration that a search finds in
one pass of layout and circuits, and in turn; and the least with every cut of every op, the faster of both
exchanges and of all all-reduces. SiP-OCS set once with 4 switches, SiP-Ring with a reach of 4. SiP-OCS
takes three minutes, the ring longer than six.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path

from sipml_core.cases import Case, Clock, Reuse, op_graph
from sipml_core.cases.compilation import prepared_by_rules
from sipml_core.cases.networkprices import network_prices
from sipml_core.cases.simulating import fastest_variant
from sipml_core.cases.steps import built_fabric
from sipml_core.cases.variants import exchanging, group_shape, offered_exchanges, variants_of
from sipml_core.errors import InfeasibleError
from sipml_core.experiment import Experiment, divisors, read_experiment
from sipml_core.model import Plan
from sipml_core.partition import Layout
from sipml_core.plugin import Registry, load
from sipml_core.searching import search

GPUS, BATCH = 8, 8192
BANDWIDTHS_GBPS = (100, 250, 1000)
NETWORKS = {
    "SiP-OCS, set once": {"name": "sip-ocs", "switches": 4},
    "SiP-Ring": {"name": "sip-ring", "reach_hops": 4},
}
WORKLOAD = {
    "name": "layers",
    "features": 4096,
    "classes": 8192,
    "layers": [{"kind": "dense", "features": 8192}, {"kind": "dense", "features": 4096}],
}


def experiment_of(registry: Registry, network: str, gbps: float, rounds: int) -> Experiment:
    """Return the job, to be searched with so many rounds."""
    tables = {
        "title": "exhaustive-search",
        "cluster": {"gpus": GPUS, "bandwidth_gbps": gbps},
        "workload": WORKLOAD,
        "plan": {"global_batch": BATCH, "layout": "auto"},
        "search": {"global_batches": [BATCH], "top": len(divisors(GPUS))},
        "topology": {**NETWORKS[network], "rounds": rounds},
    }
    return read_experiment(tables, registry)


def layouts_of(experiment: Experiment, plan: Plan) -> Iterator[Layout]:
    """Yield every layout: each op whole, or cut along any of the dimensions that it offers."""
    job = experiment.jobs[0]
    graph = op_graph(job.workload, plan.micro_samples, experiment.precision, plan.cp, plan.ep)
    led = [op for op in graph.ops if op.follows is None]
    for dims in product(*((None, *op.splits) for op in led)):
        yield Layout(name="auto", dims={op.name: dim for op, dim in zip(led, dims, strict=True)})


def least_us(experiment: Experiment, mp: int) -> float:
    """Return the least iteration of all layouts with a degree; infinite: none can run. [us]"""
    job, interconnect, reuse = experiment.jobs[0], experiment.interconnects[0], Reuse()
    gbps = interconnect.cluster.bandwidth_gbps
    case = Case.of(experiment, job, interconnect, job.plan(GPUS, mp=mp))
    fabric = built_fabric(interconnect.topology, interconnect.cluster)
    group = group_shape(fabric, case.plan, network_prices(fabric, case.plan, gbps), gbps)
    best_us, known = float("inf"), set[tuple[object, ...]]()
    for exchange, layout in product(offered_exchanges(case, group), layouts_of(experiment, case.plan)):
        with suppress(InfeasibleError):
            way = exchanging(case, fabric, exchange, group)
            for variant in variants_of(case, fabric, way, layout, reuse):
                graph = variant.placement.graph
                cut = exchange.name, variant.plan.all_reduce, *graph.split_dim, *graph.parts.tolist()
                if cut not in known:
                    known.add(cut)
                    ran = fastest_variant(prepared_by_rules(variant, reuse), Clock(None), timeline=False)
                    best_us = min(best_us, ran.row.measured_us)
    return best_us


def rows_of(registry: Registry, network: str, gbps: float) -> Iterator[dict[str, object]]:
    """Yield for each degree what a search finds in one pass and in turn, and the best of all."""
    once, turns = (experiment_of(registry, network, gbps, rounds) for rounds in (1, 6))
    found = [{row.mp: row.iteration_us for row in result.rows} for result in search([once, turns])]
    for mp in divisors(GPUS):
        yield {
            "network": network,
            "bandwidth_gbps": gbps,
            "mp": mp,
            "once_us": found[0][mp],
            "turns_us": found[1][mp],
            "least_us": least_us(once, mp),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    asked, registry = parser.parse_args(), load()
    with (asked.out / "exhaustive_search.csv").open("w", encoding="utf-8", newline="") as file:
        columns = ("network", "bandwidth_gbps", "mp", "once_us", "turns_us", "least_us")
        table = csv.DictWriter(file, columns, lineterminator="\n")
        table.writeheader()
        for network, gbps in product(NETWORKS, BANDWIDTHS_GBPS):
            table.writerows(rows_of(registry, network, gbps))
            file.flush()


if __name__ == "__main__":
    main()
