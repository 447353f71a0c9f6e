"""What the search's estimate is worth: estimate over simulation less 1, by interconnect.

    python benchmarks/search_estimates.py                # all five, the table of docs/search.md
    python benchmarks/search_estimates.py elect-flat "sip-ocs, re-planned"

64 V100s, ResNet-50 and Transformer, mp 1 to 16, 256 Gbps and 2 Tbps; every candidate is simulated.
The last columns: how much longer the search's choice takes than the best of all, at worst, if it simulates
only the one or four candidates with the best estimates. About a minute for each interconnect but the ring.
"""

from __future__ import annotations

import statistics
import sys

from sipml_core.experiment import read_experiment
from sipml_core.plugin import load
from sipml_core.searching import SearchRow, search

TOPOLOGIES = {
    **{name: {"name": name} for name in ("elect-flat", "elect-cluster", "sip-ocs", "sip-ring")},
    "sip-ocs, re-planned": {"name": "sip-ocs", "interval_us": 100, "reconfiguration_us": 20},
}
BATCHES = {"resnet50": [256, 1024], "transformer": [64, 256]}
DEGREES = [1, 2, 4, 8, 16]
BANDWIDTHS_GBPS = (256, 2048)


def rows(topology: str) -> list[SearchRow]:
    """Every candidate at every bandwidth, estimated and simulated."""
    registry = load()
    experiments = [
        read_experiment(
            {
                "title": "estimates",
                "cluster": {"gpus": 64, "bandwidth_gbps": bandwidth_gbps},
                "engine": {"fold": "auto"},
                "search": {"mp": DEGREES, "top": len(DEGREES) * len(batches)},
                "workload": {"name": name, "search": {"global_batches": batches}},
                "topology": TOPOLOGIES[topology],
            },
            registry,
        )
        for bandwidth_gbps in BANDWIDTHS_GBPS
        for name, batches in BATCHES.items()
    ]
    found = search(experiments, jobs=1)
    return [row for result in found for row in result.rows if row.error is not None]


def worst_choice(rows: list[SearchRow], top: int) -> float:
    """How much longer the best of the `top` estimated first takes than the best of all, at worst."""
    losses = []
    for case in {(row.workload, row.bandwidth_gbps) for row in rows}:
        mine = [row for row in rows if (row.workload, row.bandwidth_gbps) == case]
        mine.sort(key=lambda row: row.estimate_s)
        times_s = [row.time_to_accuracy_s for row in mine]
        losses.append(min(times_s[:top]) / min(times_s) - 1)
    return max(losses)


def extreme(row: SearchRow) -> str:
    return f"{row.error:+.1%} ({row.workload}, mp {row.mp}, {row.global_batch}, {row.bandwidth_gbps:g} Gbps)"


def main() -> None:
    print("| network | pure DP | mp 2 to 16: least | most | median size | top 1 loses | top 4 |")
    print("|---|---|---|---|--:|--:|--:|")
    for topology in sys.argv[1:] or TOPOLOGIES:
        found = rows(topology)
        pure = [row.error for row in found if row.mp == 1]
        hybrid = sorted((row for row in found if row.mp > 1), key=lambda row: row.error)
        cells = [
            topology,
            f"{min(pure):+.1%} to {max(pure):+.1%}",
            extreme(hybrid[0]),
            extreme(hybrid[-1]),
            f"{statistics.median(abs(row.error) for row in hybrid):.1%}",
            *(f"{worst_choice(found, top):.1%}" for top in (1, 4)),
        ]
        print("|", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
