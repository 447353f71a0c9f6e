"""What a pipeline costs as it grows: in micro-batches, layers, stages and replicas.

    python benchmarks/pipeline_growth.py

GPT-3 on an ideal switch, folded, one change at a time; each run in a process of its own. About two minutes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "examples" / "gpt3_175b.toml"
#: What is changed, the keys that change it, and GPUs and global batch to go with it.
CASES = {
    "mp 8, pp 8, dp 16, 96 layers, 64 micro-batches": ([], 1024, 1024),
    "32 micro-batches": ([], 1024, 512),
    "128 micro-batches": ([], 1024, 2048),
    "48 layers": (["workload.layers=48"], 1024, 1024),
    "192 layers": (["workload.layers=192", "plan.zero=2"], 1024, 1024),
    "pp 4": (["plan.pp=4", "plan.zero=2"], 512, 1024),
    "pp 16": (["plan.pp=16"], 2048, 1024),
    "dp 64": (["plan.dp=64"], 4096, 4096),
}


def measured(changes: list[str], gpus: int, batch: int) -> tuple[float, float]:
    """Return processor seconds and peak megabytes of one run."""
    sets = [*changes, f"cluster.gpus={gpus}", f"plan.global_batch={batch}", "topology=[{name='elect-flat'}]"]
    options = [part for change in sets for part in ("--set", change)]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "sipml_core", "run", str(EXAMPLE), "--no-store", *options]
        process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        complaint = process.stderr.read() if process.stderr else ""
        _, status, used = os.wait4(process.pid, 0)
    if status:
        sys.exit(complaint)
    return used.ru_utime + used.ru_stime, used.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def main() -> None:
    print("| GPT-3, folded to one replica, Elect-Flat | processor time | peak memory |")
    print("|---|--:|--:|")
    for name, (changes, gpus, batch) in CASES.items():
        seconds, megabytes = measured(changes, gpus, batch)
        print(f"| {name} | {seconds:.1f} s | {megabytes:.0f} MB |", flush=True)


if __name__ == "__main__":
    main()
