"""How long 500 jobs on 1024 GPUs take to simulate, also where they share links all the time.

python benchmarks/many_jobs.py                        many_jobs.toml with each allocator, on each network
python benchmarks/many_jobs.py random elect-cluster   one of them
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import attrs

from sipml_core.plugin import load
from sipml_core.sharing import open_shared, run_shared

FILE = Path(__file__).with_name("many_jobs.toml")
ALLOCATORS = ("compact", "contiguous", "first-fit", "random")


def main() -> None:
    registry = load()
    allocators = [sys.argv[1]] if len(sys.argv) > 1 else ALLOCATORS
    print("| allocator | network | makespan | used | waited | slow-down | slowest | together | CPU time |")
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|")
    for allocator in allocators:
        experiment = open_shared(FILE, registry, set={"sharing.allocator": allocator})
        for k, interconnect in enumerate(experiment.interconnects):
            if len(sys.argv) > 2 and interconnect.label != sys.argv[2]:
                continue
            began_s = time.process_time()
            (row,) = run_shared(only(experiment, k)).summaries
            took_s = time.process_time() - began_s
            print(
                f"| {allocator} | {row.topology} | {row.makespan_us / 1e6:.0f} s | "
                f"{100 * row.utilisation:.0f} % | {row.waited_us / 1e6:.1f} s | {row.slowdown:.3f}x | "
                f"{row.slowest:.2f}x | {row.simulated_together} | {took_s:.0f} s |",
                flush=True,
            )


def only(experiment, network):
    """Return the experiment on one of its networks."""
    kinds = tuple(
        attrs.evolve(kind, interconnects=(kind.interconnects[network],)) for kind in experiment.kinds
    )
    return attrs.evolve(experiment, interconnects=(experiment.interconnects[network],), kinds=kinds)


if __name__ == "__main__":
    main()
