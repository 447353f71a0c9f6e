"""Beside other simulators: the same jobs, where their programs are given; else the figures recorded for them.

    python benchmarks/peers.py                               # ours now, theirs as recorded
    python benchmarks/peers.py --largest 256
    python benchmarks/peers.py --peer 'ring-1024=AstraSim_Analytical_Congestion_Aware --workload-config ...'

A peer is the name of a job and the command line that runs it there; several may be given. Whole processes,
median of three: wall seconds and peak memory. The jobs: ring all-reduce of 100 MiB in explicit steps, 500 ns
a hop, 100 Gbps, on 64 to 2048 GPUs; and a training step of ResNet-50 on 1024 GPUs (1 Tbps, mp 8 x dp 128), of
every GPU and folded.
"""

from __future__ import annotations

import argparse
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

#: Unit of `ru_maxrss`.
MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024
LATENCY_US = 0.5

RECORDED = """\
Recorded on one virtual machine with 2 cores (whole processes, medians; latency 500 ns a hop):

| job | sipml | others |
|---|---|---|
| ring all-reduce, 64 GPUs | 0.16 to 0.18 s | ASTRA-sim, analytical backends: 0.03 s |
| ring all-reduce, 1024 GPUs | 0.84 to 0.91 s, 229 MB | 4.1 and 4.8 s, 363 MB |
| ring all-reduce, 2048 GPUs | 4.9 s, 744 MB | 18 and 23 s, 1.4 GB |
| ResNet-50, 1024 GPUs | 1.37 s, 136 MB | the paper's simulator, one group of 8: 74 to 130 s, 9.3 GB |
| ResNet-50, 1024 GPUs, folded | 1.10 s, 136 MB | |
"""

RESNET = """\
title = "resnet-1024"
cluster = {{ gpus = 1024, bandwidth_gbps = "1 Tbps" }}
engine = {{ fold = "{fold}" }}
workload = {{ name = "resnet50", strategy = {{ mp = 8, dp = 128, global_batch = 1024 }} }}
topology = {{ name = "elect-flat" }}
"""


def ring(gpus: int) -> None:
    """Simulate the ring all-reduce in this process."""
    import numpy as np
    from engine_events import GBPS, ring_all_reduce

    from sipml_core.engine import simulate
    from sipml_core.model import Fabric, Network, Routes

    def ports(src, dst):
        links = np.stack([src, gpus + dst], axis=1)
        return Routes(links=links, latency_us=np.full(len(src), LATENCY_US))

    tasks = ring_all_reduce(gpus)
    fabric = Fabric(gpus=gpus, link_gbps=np.full(2 * gpus, GBPS), route=ports)
    print(f"ends after {simulate(tasks, Network.of(fabric, tasks)).total_us:.1f} us")


def median_of_three(command: list[str], folder: str) -> tuple[float, float]:
    """Return wall seconds and peak megabytes of a command."""
    walls_s, megabytes = [], 0.0
    for _ in range(3):
        started_s = time.perf_counter()
        child = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(child.pid, 0)
        walls_s.append(time.perf_counter() - started_s)
        if status:
            raise SystemExit(f"{shlex.join(command)} ended with status {os.waitstatus_to_exitcode(status)}")
        megabytes = max(megabytes, used.ru_maxrss * MAXRSS_BYTES / 1e6)
    return statistics.median(walls_s), megabytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--peer", action="append", default=[], metavar="JOB=COMMAND")
    parser.add_argument("--largest", type=int, default=2048, help="leave out larger jobs. [GPUs]")
    parser.add_argument("--ring", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.ring:
        ring(asked.ring)
        return
    jobs = {f"ring-{n}": [sys.executable, __file__, "--ring", str(n)] for n in (64, 1024, 2048)}
    jobs |= {
        f"resnet-1024-{fold}": [sys.executable, "-m", "sipml_core", "run", f"{fold}.toml", "--no-store"]
        for fold in ("never", "auto")
    }
    jobs = {name: command for name, command in jobs.items() if int(name.split("-")[1]) <= asked.largest}
    with tempfile.TemporaryDirectory() as folder:
        for fold in ("never", "auto"):
            (Path(folder) / f"{fold}.toml").write_text(RESNET.format(fold=fold))
        runs = [(name, "sipml", command, folder) for name, command in jobs.items()]
        for peer in asked.peer:
            name, _, command = peer.partition("=")
            runs.append((name, shlex.split(command)[0], shlex.split(command), os.getcwd()))
        print("| job | program | wall, median of 3 [s] | peak memory [MB] |\n|---|---|--:|--:|")
        for name, program, command, where in runs:
            wall_s, megabytes = median_of_three(command, where)
            print(f"| {name} | {Path(program).name} | {wall_s:.2f} | {megabytes:.0f} |", flush=True)
    if not asked.peer:
        print("\n" + RECORDED)


if __name__ == "__main__":
    main()
