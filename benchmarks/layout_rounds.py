"""What layouts gain that are chosen with what circuits give: one round, up to six, and any prices at all.

    python benchmarks/layout_rounds.py [--out FOLDER]
    python docs/results.py                  # the table in docs/circuit-planning.md

layout_rounds.csv: the iteration with layout `auto` in one round and in up to six, the round whose layout was
kept, and the least with the layouts that any of 36 pairs of prices choose. 16 V100s, mixed precision, mp 4,
the faster of both exchanges; SiP-OCS set once, SiP-Ring with a reach of 6. Two minutes.
"""

from __future__ import annotations

import argparse
import csv
import re
from contextlib import suppress
from itertools import product
from pathlib import Path

from sipml_core.cases import Case, Clock, Reuse, run_experiment
from sipml_core.cases.compilation import prepared_by_rules
from sipml_core.cases.networkprices import network_prices
from sipml_core.cases.simulating import fastest_variant
from sipml_core.cases.steps import built_fabric
from sipml_core.cases.variants import chosen_layouts, exchanging, group_shape, offered_exchanges, variants_of
from sipml_core.errors import InfeasibleError
from sipml_core.experiment import Experiment, read_experiment
from sipml_core.model import Prices
from sipml_core.plugin import Registry, load

MOST_ROUNDS = 6
#: Prices that are tried for the group, and for the counterparts, of the bandwidth of a GPU.
PARTS = (1, 0.5, 0.25, 0.125, 0.06, 0.03)
BANDWIDTHS_GBPS = (250, 1000, 4000)
NETWORKS = {
    "Elect-Flat": {"name": "elect-flat"},
    "SiP-OCS, set once": {"name": "sip-ocs"},
    "SiP-Ring": {"name": "sip-ring", "reach_hops": 6},
}
#: Workload and batch.
MODELS = {
    "Transformer": ({"name": "transformer"}, 16),
    "ResNet-50": ({"name": "resnet50"}, 64),
    "GPT (4 layers, hidden 1024)": ({"name": "gpt", "layers": 4, "hidden": 1024, "heads": 16}, 16),
}


def experiment_of(registry: Registry, model: str, network: str, gbps: float) -> Experiment:
    """Return the job in one round, and in up to six."""
    workload, batch = MODELS[model]
    tables = {
        "title": "layout-rounds",
        "cluster": {"gpus": 16, "bandwidth_gbps": gbps},
        "workload": workload,
        "plan": {"mp": 4, "global_batch": batch, "layout": "auto"},
        "topology": [{**NETWORKS[network], "rounds": k, "label": str(k)} for k in (1, MOST_ROUNDS)],
    }
    return read_experiment(tables, registry)


def least_us(experiment: Experiment) -> float:
    """Return the least iteration with the layouts that any pair of prices chooses. [us]"""
    job, interconnect, reuse = experiment.jobs[0], experiment.interconnects[0], Reuse()
    gbps = interconnect.cluster.bandwidth_gbps
    case = Case.of(experiment, job, interconnect, job.plan(interconnect.cluster.gpus))
    fabric = built_fabric(interconnect.topology, interconnect.cluster)
    group = group_shape(fabric, case.plan, network_prices(fabric, case.plan, gbps), gbps)
    times_us: dict[tuple[object, ...], float] = {}
    for exchange, inside, across in product(offered_exchanges(case, group), PARTS, PARTS):
        prices = Prices(group_gbps=gbps * inside, replica_gbps=gbps * across)
        with suppress(InfeasibleError):
            way = exchanging(case, fabric, exchange, group)
            (chosen,) = chosen_layouts(case, [prices], reuse)
            for variant in variants_of(case, fabric, way, chosen, reuse):
                graph = variant.placement.graph
                layout = exchange.name, *graph.split_dim, *graph.parts.tolist(), *graph.duplicated
                if layout not in times_us:
                    ran = fastest_variant(prepared_by_rules(variant, reuse), Clock(None), timeline=False)
                    times_us[layout] = ran.row.iteration_us
    return min(times_us.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    asked, registry = parser.parse_args(), load()
    with (asked.out / "layout_rounds.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("job", "network", "bandwidth_gbps", "once_us", "rounds_us", "kept_round", "least_us"))
        for model, network, gbps in product(MODELS, NETWORKS, BANDWIDTHS_GBPS):
            experiment = experiment_of(registry, model, network, gbps)
            once, best = run_experiment(experiment).cases
            kept = re.search(r"in turn, (\d+) rounds", " ".join(best.notes))
            times = (once.iteration_us, best.iteration_us, int(kept[1]) if kept else 1, least_us(experiment))
            table.writerow((f"{model}, batch {MODELS[model][1]}", network, gbps, *times))
            file.flush()


if __name__ == "__main__":
    main()
