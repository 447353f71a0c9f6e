"""What is left out where jobs share links: neighbours that stay, fewer iterations, situations known before.

    python benchmarks/sharing_errors.py [--out FOLDER]
    python docs/results.py                  # the table in docs/sharing.md

sharing_errors.csv: 20 jobs of 2 to 6 GPUs on 64, servers of 8 with one uplink, with three allocators. At each
change of who runs, the reference simulates all jobs that are joined by links again, whatever was found
before, each for 24 iterations at first and 96 at most. Against it: all that `share` leaves out, and one thing
of that alone. In each row, how much longer the iterations of jobs are (negative: shorter), in the mean of
sizes, at most, and in the mean; the same of the mean slow-down, and of the makespan. Half a minute of a core.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from sipml_core.plugin import Registry, load
from sipml_core.sharing import SharedResult, clusterrun, run_shared, speeds
from sipml_core.sharing.jobtables import read_shared

ALLOCATORS = ("compact", "first-fit", "random")
#: What may be left out, one by one: all of it is what `share` does.
LEFT_OUT = ("neighbours that stay", "iterations of many", "known situations", "long stretches")
TABLES: dict[str, Any] = {
    "title": "sharing-errors",
    "seed": 1,
    "cluster": {"gpus": 64, "bandwidth_gbps": 400},
    "arrivals": {
        "jobs": 20,
        "mean_interval_us": "0.05 s",
        "gpus": [2, 4, 6],
        "iterations": [100, 200, 400],
    },
    "workload": [
        {"name": "resnet50", "plan": {"global_batch": 48}},
        {
            "name": "gpt", "layers": 2, "hidden": 512, "heads": 8, "sequence": 256,
            "plan": {"global_batch": 48, "layout": "auto"},
        },
    ],
    "topology": [{"name": "elect-cluster", "server_gpus": 8, "uplink_gbps": 50}],
}  # fmt: skip


@contextmanager
def simulating_all_but(left_out: tuple[str, ...]) -> Iterator[None]:
    """Leave out only some of what `share` leaves out."""
    number = itertools.count()
    situation = speeds.situation

    def new_situation(jobs: Any) -> Any:
        return situation(jobs)[0], next(number)

    with ExitStack() as changed:
        if "neighbours that stay" not in left_out:
            changed.enter_context(patch.object(clusterrun, "is_due", lambda before, now: True))
        if "iterations of many" not in left_out:
            changed.enter_context(patch.object(speeds, "FULL_STRETCH", 1_000_000))
        if "known situations" not in left_out:
            changed.enter_context(patch.object(speeds, "situation", new_situation))
        yield


def shared(registry: Registry, allocator: str, left_out: tuple[str, ...]) -> SharedResult:
    """Return what becomes of the jobs."""
    table = {"allocator": allocator}
    if "long stretches" not in left_out:
        table |= {"least_iterations": 24, "most_iterations": 96}
    with simulating_all_but(left_out):
        return run_shared(read_shared({**TABLES, "sharing": table}, registry))


def errors(found: SharedResult, exact: SharedResult) -> dict[str, float]:
    """Return how much longer jobs take than in the reference, and the whole."""
    known = {row.job: row.iteration_us for row in exact.rows if row.iteration_us}
    ratios = np.array([row.iteration_us / known[row.job] for row in found.rows if row.iteration_us]) - 1
    (mine,), (whole,) = found.summaries, exact.summaries
    return {
        "mean": float(np.abs(ratios).mean()),
        "most": float(np.abs(ratios).max()),
        "bias": float(ratios.mean()),
        "slowdown": mine.slowdown / whole.slowdown - 1,
        "makespan": mine.makespan_us / whole.makespan_us - 1,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    asked, registry = parser.parse_args(), load()
    with (asked.out / "sharing_errors.csv").open("w", encoding="utf-8", newline="") as file:
        table = None
        for allocator in ALLOCATORS:
            exact = shared(registry, allocator, ())
            for left_out in ((), LEFT_OUT, *((each,) for each in LEFT_OUT)):
                began_s = time.process_time()
                found = shared(registry, allocator, left_out) if left_out else exact
                (summary,) = found.summaries
                row = {
                    "allocator": allocator,
                    "left_out": " and ".join(left_out) if len(left_out) < 2 else "all",
                    "slowdown": summary.slowdown,
                    "simulated_together": summary.simulated_together,
                    **{f"error_{name}": value for name, value in errors(found, exact).items()},
                }
                print(row, f"{time.process_time() - began_s:.1f} s", flush=True)
                table = table or csv.DictWriter(file, list(row), lineterminator="\n")
                if file.tell() == 0:
                    table.writeheader()
                table.writerow(row)
                file.flush()


if __name__ == "__main__":
    main()
