"""Every bundled network and three jobs: the table of docs/which-network.md.

    python benchmarks/which_network.py      # simulate, write docs/results/which_network.csv
    python docs/results.py                  # the table in the page

Half a minute.
"""

from __future__ import annotations

import csv
from pathlib import Path

import sipml_core as sipml

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "docs" / "results" / "which_network.csv"


def main() -> None:
    """Simulate all, and write them."""
    rows = sipml.run(HERE / "which_network.toml").rows()
    with RESULTS.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["network", "job", "iteration_us"])
        writer.writerows([row["topology"], row["workload"], f"{row['iteration_us']:.6g}"] for row in rows)


if __name__ == "__main__":
    main()
