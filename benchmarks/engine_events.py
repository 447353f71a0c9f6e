"""Speed and memory of the engine: events per second on one core, peak memory of the process.

    python benchmarks/engine_events.py [--record] [CASE ...]

Each case runs in a process of its own, so that its peak memory is its own. Times are those of the
processor, which other processes disturb less; the time that a circuit driver takes to decide is left out.
With --record the course of each transfer and samples of the links are kept, as `run --details` does.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time

import numpy as np

from sipml_core.engine import CircuitSettings, Recording, simulate
from sipml_core.model import BARRIER, NO_LINK, CircuitControl, Fabric, Network, Routes, TaskGraph

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


def all_to_all(way=32, rounds=12, jitter=0.1, seed=0):
    """In groups of `way` each GPU sends to all others at once, and again when it has received from all.

    Sizes differ by +-`jitter`, so that nothing ends at the same time.
    """
    rng = np.random.default_rng(seed)
    group, src, dst = np.meshgrid(np.arange(GPUS // way), np.arange(way), np.arange(way), indexing="ij")
    apart = src != dst
    src, dst = (group * way + src)[apart], (group * way + dst)[apart]
    sends = len(src) * rounds
    arrived = (np.arange(rounds) * GPUS)[:, None]  # barrier: GPU i has received everything of round r
    barriers = GPUS * rounds
    transfer = barriers + np.arange(sends).reshape(rounds, -1)
    start, successors = edges_to_csr(
        barriers + sends,
        np.concatenate([transfer.ravel(), (arrived + src)[:-1].ravel()]),
        np.concatenate([(arrived + dst).ravel(), transfer[1:].ravel()]),
    )
    return TaskGraph(
        gpus=GPUS,
        gpu=np.full(barriers, BARRIER),
        duration_us=np.zeros(barriers),
        priority=np.zeros(barriers + sends),
        src=np.tile(src, rounds),
        dst=np.tile(dst, rounds),
        size_bytes=BYTES_PER_US * rng.uniform(1 - jitter, 1 + jitter, sends),
        latency_steps=np.ones(sends),
        succ_start=start,
        successors=successors,
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


class Resetting:
    """Every 10 us gives full capacity to the circuits that something waits for, half of it to the others."""

    interval_us = 10.0

    def __init__(self):
        self.spent_s = 0.0

    def decide(self, now_us, sent_bytes, backlog_bytes):
        started_s = time.process_time()
        settings = CircuitSettings.at_once(np.where(backlog_bytes > 0, GBPS, GBPS / 2))
        self.spent_s += time.process_time() - started_s
        return settings


#: Route, capacities of the fixed links, driver of the circuits.
FABRICS = {
    "ports": (ports, np.full(2 * GPUS, GBPS), None),
    "racks": (racks, np.r_[np.full(2 * GPUS, GBPS), np.full(2 * GPUS // RACK, RACK / 2 * GBPS)], None),
    "fifo": (circuits, np.full(GPUS**2, GBPS), None),
    "circuits": (circuits, [], Resetting),
}
CASES = {
    "random-ports": (random_job, "ports", "pair"),
    "random-ports-source": (random_job, "ports", "source"),
    "random-racks": (random_job, "racks", "pair"),
    "random-fifo": (random_job, "fifo", "pair"),
    "random-circuits": (random_job, "circuits", "pair"),
    "all-to-all": (all_to_all, "ports", "pair"),
    "ring-all-reduce": (ring_all_reduce, "ports", "pair"),
}


def run(case: str, record: bool) -> None:
    """Build and run one case, and print its line."""
    job, fabric, queue = CASES[case]
    route, gbps, make_driver = FABRICS[fabric]
    control = CircuitControl(gpus=GPUS, circuit_gbps=GBPS, circuits_per_gpu=GPUS) if make_driver else None
    started_s = time.process_time()
    tasks = job()
    network = Network.of(Fabric(gpus=GPUS, link_gbps=gbps, route=route, circuits=control), tasks)
    driver = make_driver() if make_driver else None
    built_s = time.process_time()
    recording = Recording() if record else None
    timeline = simulate(tasks, network, queue=queue, driver=driver, recording=recording)
    ran_s = time.process_time() - built_s - (driver.spent_s if driver else 0.0)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * MAXRSS_BYTES / 1e6
    print(
        f"{case:20} {tasks.transfers:8} transfers  built in {built_s - started_s:5.2f} s  "
        f"run in {ran_s:6.3f} s  {timeline.events / ran_s / 1e6:6.3f} M events/s  {peak_mb:4.0f} MB  "
        f"ends at {timeline.total_us:.6g} us"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)}; all if none is given")
    parser.add_argument("--record", action="store_true", help="keep what `run --details` needs")
    asked = parser.parse_args()
    chosen = asked.cases or list(CASES)
    if len(chosen) == 1:
        run(chosen[0], asked.record)
        return
    for case in chosen:
        subprocess.run([sys.executable, __file__, case, *["--record"] * asked.record], check=True)


if __name__ == "__main__":
    main()
