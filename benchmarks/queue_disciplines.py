"""Iteration time under the two queue disciplines: one transfer at a time per pair, or per sending GPU.

    python benchmarks/queue_disciplines.py

64 V100s, mp 8 x dp 8; prints the table of docs/model.md. About 20 s.
"""

from __future__ import annotations

import sipml_core as sipml
from sipml_core.experiment import read_experiment
from sipml_core.plugin import load

TOPOLOGIES = ("elect-flat", "elect-cluster", "sip-ocs", "sip-ring")


def times_ms(model: str, batch: int, layout: str, bandwidth_gbps: float, queue: str) -> list[float]:
    tables = {
        "title": "queues",
        "cluster": {"gpus": 64, "bandwidth_gbps": bandwidth_gbps},
        "engine": {"queue": queue},
        "workload": {"name": model, "strategy": {"mp": 8, "dp": 8, "global_batch": batch, "layout": layout}},
        "topology": [{"name": name} for name in TOPOLOGIES],
    }
    return [case.iteration_us / 1e3 for case in sipml.run(read_experiment(tables, load())).cases]


def main() -> None:
    print("| model, layout, B |", " | ".join(TOPOLOGIES), "|")
    print("|---|" + "--:|" * len(TOPOLOGIES))
    for model, batch in (("resnet50", 512), ("transformer", 64)):
        for layout in ("auto", "tensor"):
            for bandwidth_gbps in (200, 2000):
                pair = times_ms(model, batch, layout, bandwidth_gbps, "pair")
                source = times_ms(model, batch, layout, bandwidth_gbps, "source")
                cells = [f"{a:.1f} / {b:.1f} ({b / a - 1:+.0%})" for a, b in zip(pair, source, strict=True)]
                print(f"| {model}, {layout}, {bandwidth_gbps} Gbps |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
