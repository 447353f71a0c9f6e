"""What circuits are planned for, on whole jobs: bytes, gating pairs, the best of four rules, the schedule.

    python benchmarks/circuit_demand.py [--workload W] [--gpus N ...] [--mp K ...] [--bandwidths GBPS ...]

Columns: iteration time with `demand = "bytes"` [ms]; of it what "gating" and "auto" take, the estimator
`oracle` with bytes, and the rule that "auto" kept. V100, mixed precision, a sample for each GPU, direct
exchange; SiP-Ring with a reach of 16 (6 of 16 GPUs), SiP-OCS with 16 switches, re-planned every 100 us with
20 us of dark, and set once.
"""

from __future__ import annotations

import argparse
import math

from sipml_core.cases import run_experiment
from sipml_core.experiment import read_experiment
from sipml_core.model import CaseResult
from sipml_core.plugin import Registry, load

HEADINGS = ("network", "N", "mp", "Gbps", "bytes [ms]", "gating", "auto", "oracle", "kept by auto")
OCS = {"name": "sip-ocs", "switches": 16}


def networks(gpus: int) -> dict[str, dict[str, object]]:
    return {
        "ring": {"name": "sip-ring", "reach_hops": 16 if gpus > 16 else 6},
        "ocs": {**OCS, "interval_us": 100, "reconfiguration_us": 20},
        "ocs, set once": OCS,
    }


def rows_of(
    registry: Registry, workload: str, network: str, gpus: int, mp: int, gbps: float, samples: int
) -> tuple[CaseResult, ...]:
    table = networks(gpus)[network]
    ways = [{}, {"demand": "gating"}, {"demand": "auto"}, {"estimator": "oracle"}]
    tables = {
        "title": "circuit-demand",
        "cluster": {"gpus": gpus, "bandwidth_gbps": gbps},
        "workload": {"name": workload},
        "plan": {"mp": mp, "global_batch": gpus * samples, "exchange": "direct", "layout": "auto"},
        "topology": [{**table, **way, "label": str(k)} for k, way in enumerate(ways)],
    }
    return run_experiment(read_experiment(tables, registry)).cases


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workload", default="transformer")
    parser.add_argument("--samples", type=int, default=1, help="for each GPU")
    parser.add_argument("--networks", nargs="+", choices=networks(16), default=list(networks(16)))
    parser.add_argument("--gpus", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--mp", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--bandwidths", type=float, nargs="+", default=[125, 500, 2000, 8000])
    asked = parser.parse_args()
    registry = load()
    print(f"| {' | '.join(HEADINGS)} |\n|{'---|' * len(HEADINGS)}")
    gains: list[list[float]] = []
    for network in asked.networks:
        for gpus in asked.gpus:
            for mp in asked.mp:
                for gbps in asked.bandwidths:
                    found = rows_of(registry, asked.workload, network, gpus, mp, gbps, asked.samples)
                    if not all(row.ran for row in found):
                        continue
                    times = [row.measured_us for row in found]
                    gains.append([time / times[0] for time in times[1:]])
                    kept = next(n for n in found[2].notes if n.startswith("circuits are planned"))
                    cells = [network, str(gpus), str(mp), f"{gbps:g}", f"{times[0] / 1e3:.4g}"]
                    cells += [f"{gain:.3f}" for gain in gains[-1]]
                    print(
                        f"| {' | '.join(cells)} | {kept.removeprefix('circuits are planned ')} |", flush=True
                    )
    for name, column in zip(HEADINGS[5:8], zip(*gains, strict=True), strict=True):
        mean = math.exp(math.fsum(map(math.log, column)) / len(column))
        print(
            f"\n{name}: {mean:.3f} in the geometric mean of {len(column)}, {max(column):.3f} at worst", end=""
        )
    print()


if __name__ == "__main__":
    main()
