"""How long 500 jobs on 1024 GPUs take to simulate, also where they share links all the time.

python benchmarks/many_jobs.py                        many_jobs.toml with each allocator, on each network
python benchmarks/many_jobs.py random elect-cluster   one of them
python benchmarks/many_jobs.py ... --out FILE.csv     write rows to a file, in place of those of the same name
"""

from __future__ import annotations

import csv
import sys
import time
from pathlib import Path

import attrs

from sipml_core.plugin import load
from sipml_core.sharing import open_shared, run_shared

FILE = Path(__file__).with_name("many_jobs.toml")
ALLOCATORS = ("compact", "contiguous", "first-fit", "random")


def main() -> None:
    registry, arguments, out = load(), sys.argv[1:], None
    if "--out" in arguments:
        at = arguments.index("--out")
        out = Path(arguments[at + 1])
        del arguments[at : at + 2]
    for allocator in arguments[:1] or ALLOCATORS:
        experiment = open_shared(FILE, registry, set={"sharing.allocator": allocator})
        for k, interconnect in enumerate(experiment.interconnects):
            if arguments[1:] and interconnect.label != arguments[1]:
                continue
            began_s = time.process_time()
            (summary,) = run_shared(only(experiment, k)).summaries
            took = {"allocator": allocator, "cpu_s": f"{time.process_time() - began_s:.1f}"}
            row = {name: str(value) for name, value in (took | attrs.asdict(summary)).items()}
            print(row, flush=True)
            if out:
                write(out, row)


def only(experiment, network):
    """Return the experiment on one of its networks."""
    kinds = tuple(
        attrs.evolve(kind, interconnects=(kind.interconnects[network],)) for kind in experiment.kinds
    )
    return attrs.evolve(experiment, interconnects=(experiment.interconnects[network],), kinds=kinds)


def write(path: Path, row: dict) -> None:
    """Put a row into a CSV file."""
    rows = []
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    named = ("allocator", "topology")
    rows = [each for each in rows if any(each[name] != row[name] for name in named)] + [row]
    rows.sort(key=lambda each: [each[name] for name in reversed(named)])
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(row), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
