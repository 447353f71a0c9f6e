"""What the price of counterparts does to layouts on Elect-Cluster: a server sends, one GPU, or nobody shares.

    python benchmarks/layout_prices.py [--out FOLDER]
    python docs/results.py                  # the table in docs/electrical.md

layout_prices.csv: the iteration of the Transformer on 1024 V100s, global batch 4096, with the layout `auto`
that is chosen with the price of all GPUs at once (an eighth of a server's uplink for a GPU's gradients), with
that of a GPU which sends alone, and with its port's; and that of a run, which keeps the fastest of them; the
fastest exchange and all-reduce. layout_prices_doubling.csv: the same of the job of bandwidth_doublings.py
that is slower with twice the bandwidth, before and after. Half a minute.
"""

from __future__ import annotations

import argparse
import csv
from itertools import product
from pathlib import Path
from typing import Any

from bandwidth_doublings import JOBS

from sipml_core.cases import Case, Clock, Reuse, simulate_variants
from sipml_core.cases.compilation import prepared_by_rules
from sipml_core.cases.networkprices import layout_prices
from sipml_core.cases.simulating import fastest_variant
from sipml_core.cases.steps import built_fabric
from sipml_core.cases.variants import chosen_layouts, exchanging, group_shape, offered_exchanges, variants_of
from sipml_core.experiment import read_experiment
from sipml_core.model import Prices
from sipml_core.plugin import Registry, load

BANDWIDTHS_GBPS, UPLINKS_GBPS, DEGREES = (512, 2048, 8192), (200, 400), (2, 4, 8)


#: Of the doubling: GPUs, degree, and bandwidth before and after; Elect-Cluster's own uplink of a server.
DOUBLED_GPUS, DOUBLED_MP, DOUBLED_GBPS, UPLINK_GBPS = 32, 16, (4096, 8192), 400


def transformer(gbps: float, uplink_gbps: float, mp: int) -> dict[str, Any]:
    """Return the experiment of the table."""
    return {
        "title": "layout-prices",
        "cluster": {"gpus": 1024, "bandwidth_gbps": gbps},
        "gpu": {"name": "v100", "precision": "mixed"},
        "workload": {
            "name": "transformer",
            "strategy": {"mp": mp, "dp": 1024 // mp, "global_batch": 4096, "counter_rotating": True},
        },
        "topology": {"name": "elect-cluster", "uplink_gbps": uplink_gbps},
    }


def doubled(gbps: float) -> dict[str, Any]:
    """Return the experiment of a doubling, as bandwidth_doublings.py has it."""
    gpt, _, _, batch = JOBS["gpt 1 x 1024"]
    strategy = {"mp": DOUBLED_MP, "dp": DOUBLED_GPUS // DOUBLED_MP, "global_batch": batch, "layout": "auto"}
    return {
        "title": "doublings",
        "cluster": {"gpus": DOUBLED_GPUS, "bandwidth_gbps": gbps},
        "engine": {"fold": "auto"},
        "workload": {**gpt, "strategy": strategy},
        "topology": {"name": "elect-cluster", "uplink_gbps": UPLINK_GBPS},
    }


def times_us(registry: Registry, tables: dict[str, Any]) -> tuple[float, ...]:
    """Return the iteration with the price of all GPUs, of one alone, and of its port; and that kept. [us]

    A price that is equal to the one before is that one.
    """
    gbps = tables["cluster"]["bandwidth_gbps"]
    experiment = read_experiment(tables, registry)
    job, interconnect, reuse = experiment.jobs[0], experiment.interconnects[0], Reuse()
    case = Case.of(experiment, job, interconnect, job.plan(interconnect.cluster.gpus))
    fabric = built_fabric(interconnect.topology, interconnect.cluster)
    prices = layout_prices(fabric, case.plan, gbps)
    group = group_shape(fabric, case.plan, prices[0], gbps)

    def least_us(prices: Prices) -> float:
        (layout,) = chosen_layouts(case, [prices], reuse)
        prepared = [
            variant
            for exchange in offered_exchanges(case, group)
            for found in variants_of(case, fabric, exchanging(case, fabric, exchange, group), layout, reuse)
            for variant in prepared_by_rules(found, reuse)
        ]
        return fastest_variant(prepared, Clock(None), timeline=False).row.iteration_us

    kept_us = simulate_variants(case, reuse, Clock(None)).row.iteration_us
    found_us = [least_us(each) for each in prices]
    return (*found_us, *found_us[-1:] * (3 - len(found_us)), kept_us)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    asked, registry = parser.parse_args(), load()
    with (asked.out / "layout_prices.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("bandwidth_gbps", "uplink_gbps", "mp", "own_us", "alone_us", "port_us", "kept_us"))
        for gbps, uplink_gbps, mp in product(BANDWIDTHS_GBPS, UPLINKS_GBPS, DEGREES):
            tables = transformer(gbps, uplink_gbps, mp)
            table.writerow((gbps, uplink_gbps, mp, *times_us(registry, tables)))
            file.flush()
    with (asked.out / "layout_prices_doubling.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("bandwidth_gbps", "own_us", "alone_us", "port_us", "kept_us"))
        for gbps in DOUBLED_GBPS:
            table.writerow((gbps, *times_us(registry, doubled(gbps))))


if __name__ == "__main__":
    main()
