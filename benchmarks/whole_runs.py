"""Wall time and peak memory of whole commands, as a user waits for them.

    python benchmarks/whole_runs.py

Each command runs five times in a process of its own; the median is printed. About a minute and a half.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).parents[1]
RUNS = 5

COMMANDS = {
    "--help": ["--help"],
    "quickstart": ["run", str(ROOT / "examples" / "quickstart.toml")],
    "Transformer, 1024 GPUs, four interconnects": ["run", str(ROOT / "benchmarks" / "transformer_1024.toml")],
}


def once(arguments: list[str]) -> tuple[float, float]:
    """Wall seconds and peak megabytes of one run, measured from a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "sipml_core", *arguments], check=True, capture_output=True, cwd=folder
        )
        wall_s = time.perf_counter() - started
    scale = 1e6 if sys.platform == "darwin" else 1e3
    return wall_s, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / scale


def main() -> None:
    print("| command | wall, median of 5 [s] | peak memory [MB] |")
    print("|---|--:|--:|")
    for name, arguments in COMMANDS.items():
        with get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
            runs = [pool.apply(once, (arguments,)) for _ in range(RUNS)]
        wall_s = statistics.median(run[0] for run in runs)
        print(f"| {name} | {wall_s:.2f} | {max(run[1] for run in runs):.0f} |", flush=True)


if __name__ == "__main__":
    main()
