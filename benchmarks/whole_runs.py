"""Wall time and peak memory of whole commands, as a user waits for them.

    python benchmarks/whole_runs.py

Each command runs three times in a process of its own, without the store; the least is printed. Two minutes.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).parents[1]
RUNS = 3


def simulated(path: str, *options: str) -> list[str]:
    """Return the arguments that run an experiment, whatever the store has of it."""
    return ["run", str(ROOT / path), "--no-store", *options]


COMMANDS = {
    "--help": ["--help"],
    "smallest run: Transformer on 4 GPUs, one network": simulated("benchmarks/smallest.toml"),
    "quickstart": simulated("examples/quickstart.toml"),
    "Transformer, 1024 GPUs, four interconnects, folded": simulated(
        "benchmarks/transformer_1024.toml", "--set", "engine.fold=auto"
    ),
    "the same, every GPU": simulated("benchmarks/transformer_1024.toml"),
    "validate of it": ["validate", str(ROOT / "benchmarks/transformer_1024.toml")],
    "GPT-3, three networks": simulated("examples/gpt3_175b.toml"),
    "Llama-3 405B, 16 384 GPUs": simulated("examples/llama3_405b.toml"),
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
    print("| command | wall, least of 3 [s] | peak memory [MB] |")
    print("|---|--:|--:|")
    for name, arguments in COMMANDS.items():
        with get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
            runs = [pool.apply(once, (arguments,)) for _ in range(RUNS)]
        wall_s = min(run[0] for run in runs)
        print(f"| {name} | {wall_s:.2f} | {max(run[1] for run in runs):.0f} |", flush=True)


if __name__ == "__main__":
    main()
