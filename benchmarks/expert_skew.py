"""What a skew of tokens over experts does to Mixtral and DeepSeek-V3 on four networks.

    python benchmarks/expert_skew.py [--out FOLDER] [EXAMPLE ...]      # three minutes of processor time

expert_skew.csv: the examples as they are, and with a skew of 0.5 and of 1. A test compares the tables of
docs/parallelization.md with it.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import sipml_core as sipml

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ("mixtral_1024", "deepseek_v3", "deepseek_v3_ring")
SKEWS = (0.0, 0.5, 1.0)
COLUMNS = ("iteration_us", "mfu", "expert_exposed_us", "gradient_exposed_us")


def main() -> None:
    """Measure the examples, and write them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("examples", nargs="*", default=EXAMPLES)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks")
    asked = parser.parse_args()
    with (asked.out / "expert_skew.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("example", "network", "skew", *COLUMNS))
        for example in asked.examples:
            for skew in SKEWS:
                experiment = sipml.load(ROOT / "examples" / f"{example}.toml", set={"workload.skew": skew})
                for row in sipml.run(experiment).rows():
                    table.writerow((example, row["topology"], skew, *(f"{row[c]:.6g}" for c in COLUMNS)))
                    file.flush()


if __name__ == "__main__":
    main()
