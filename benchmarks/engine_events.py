"""Speed and memory of the engine: events per second on one core, peak memory of the process.

    python benchmarks/engine_events.py [CASE ...]

Each case runs in a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time

import numpy as np

from sipml_core.engine import simulate
from sipml_core.model import NO_LINK, Fabric, Network, Routes, TaskGraph

GPUS = 1024
GBPS = 100.0
BYTES_PER_US = GBPS * 125.0
RACK = 32
MIB = 2**20
#: Unit of `ru_maxrss`.
MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024


def edges_to_csr(nodes, before, after):
    """Successor lists from pairs of nodes."""
    order = np.argsort(before, kind="stable")
    start = np.concatenate([[0], np.cumsum(np.bincount(before, minlength=nodes))])
    return start, after[order].astype(np.int32)


def random_job(tasks=200_000, sends=300_000, seed=0):
    """Tasks in sequence on each GPU, and transfers from tasks to later ones on other GPUs.

    On average a GPU sends for as long as it computes.
    """
    rng = np.random.default_rng(seed)
    steps = tasks // GPUS
    tasks = steps * GPUS
    sender = np.sort(rng.integers(0, (steps - 4) * GPUS, sends))
    step, gpu = sender // GPUS, sender % GPUS
    peer = (gpu + rng.integers(1, GPUS, sends)) % GPUS
    later = (step + 1 + rng.integers(0, 4, sends)) * GPUS + peer
    size = rng.lognormal(0, 0.7, sends)
    size *= BYTES_PER_US / (sends / tasks) / size.mean()
    transfer = tasks + np.arange(sends)
    chain = np.arange(tasks - GPUS)
    start, successors = edges_to_csr(
        tasks + sends,
        np.concatenate([sender, transfer, chain]),
        np.concatenate([transfer, later, chain + GPUS]),
    )
    return TaskGraph(
        gpus=GPUS,
        gpu=np.arange(tasks) % GPUS,
        duration_us=rng.lognormal(0, 0.3, tasks),
        priority=np.zeros(tasks + sends),
        src=gpu,
        dst=peer,
        size_bytes=size,
        latency_steps=np.ones(sends),
        succ_start=start,
        successors=successors,
        marks=[],
        label=[],
    )


def ring_all_reduce(gpus=GPUS, size_bytes=100 * MIB):
    """2 (n - 1) steps; in each, every member sends the chunk it got in the last one to its neighbour."""
    steps = 2 * (gpus - 1)
    count = steps * gpus
    src = np.tile(np.arange(gpus, dtype=np.int32), steps)
    sends_on = np.arange(count - gpus)
    return TaskGraph(
        gpus=gpus,
        gpu=[],
        duration_us=[],
        priority=np.zeros(count, dtype=np.int32),
        src=src,
        dst=(src + 1) % gpus,
        size_bytes=np.full(count, size_bytes / gpus),
        latency_steps=np.ones(count),
        succ_start=np.minimum(np.arange(count + 1), count - gpus),
        successors=sends_on // gpus * gpus + gpus + (sends_on % gpus + 1) % gpus,
        marks=[],
        label=[],
    )


def ports(src, dst):
    links = np.stack([src, GPUS + dst], axis=1)
    return Routes(links=links, latency_us=np.zeros(len(src)))


def racks(src, dst):
    """GPU, rack uplink, rack downlink, GPU; racks are oversubscribed two to one."""
    up, down = 2 * GPUS + src // RACK, 2 * GPUS + GPUS // RACK + dst // RACK
    same = src // RACK == dst // RACK
    links = np.stack([src, np.where(same, NO_LINK, up), np.where(same, NO_LINK, down), GPUS + dst], axis=1)
    return Routes(links=links, latency_us=np.zeros(len(src)))


def circuits(src, dst):
    """A link for each ordered pair: a first-in, first-out queue."""
    return Routes(links=(src.astype(np.int64) * GPUS + dst)[:, None], latency_us=np.zeros(len(src)))


FABRICS = {
    "ports": (ports, np.full(2 * GPUS, GBPS)),
    "racks": (racks, np.r_[np.full(2 * GPUS, GBPS), np.full(2 * GPUS // RACK, RACK / 2 * GBPS)]),
    "circuits": (circuits, np.full(GPUS**2, GBPS)),
}
CASES = {
    "random-ports": (random_job, "ports", "pair"),
    "random-ports-source": (random_job, "ports", "source"),
    "random-racks": (random_job, "racks", "pair"),
    "random-circuits": (random_job, "circuits", "pair"),
    "ring-all-reduce": (ring_all_reduce, "ports", "pair"),
}


def run(case: str) -> None:
    """Build and run one case, and print its line."""
    job, fabric, queue = CASES[case]
    route, gbps = FABRICS[fabric]
    started_s = time.perf_counter()
    tasks = job()
    network = Network.of(Fabric(gpus=GPUS, link_gbps=gbps, route=route), tasks)
    built_s = time.perf_counter()
    timeline = simulate(tasks, network, queue=queue)
    ran_s = time.perf_counter() - built_s
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * MAXRSS_BYTES / 1e6
    print(
        f"{case:20} {tasks.transfers:8} transfers  built in {built_s - started_s:5.2f} s  "
        f"run in {ran_s:6.3f} s  {timeline.events / ran_s / 1e6:6.2f} M events/s  {peak_mb:4.0f} MB  "
        f"ends at {timeline.total_us:.6g} us"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)}; all if none is given")
    chosen = parser.parse_args().cases or list(CASES)
    if len(chosen) == 1:
        run(chosen[0])
        return
    for case in chosen:
        subprocess.run([sys.executable, __file__, case], check=True)


if __name__ == "__main__":
    main()
