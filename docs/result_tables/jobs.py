"""Jobs that share a cluster."""

from __future__ import annotations

from collections.abc import Callable

from result_tables import common


def _percent(text: str) -> str:
    return f"{float(text):.0%}".replace("%", " %")


def fragmentation() -> str:
    """Return what becomes of jobs on each network, by how GPUs are given to them."""
    lines = [
        [row["setting"], row["topology"], f"{float(row['makespan_us']) / 1e6:.0f} s",
         _percent(row["utilisation"]), _percent(row["fragmentation"]),
         f"{float(row['waited_us']) / 1e6:.1f} s", f"{float(row['slowdown']):.3f}x",
         f"{float(row['slowest']):.2f}x"]
        for row in common.rows("fragmentation")
    ]  # fmt: skip
    head = ["GPUs of a job", "network", "makespan", "used", "split", "waited", "slow-down", "slowest"]
    return common.table(head, lines, numbers_from=2) if lines else common.missing("fragmentation")


def fragmentation_claims() -> str:
    """Return what was held against these results."""
    lines = [
        [row["claim"], f"{float(row['ratio']):.3g}x" if row["ratio"] else "-", row["verdict"]]
        for row in common.rows("fragmentation_claims")
    ]
    head = ["claim", "ratio", "verdict"]
    return common.table(head, lines, numbers_from=9) if lines else common.missing("fragmentation")


def many_jobs() -> str:
    """Return how long many jobs on a large cluster take to simulate."""
    lines = [
        [row["allocator"], row["topology"], f"{float(row['makespan_us']) / 1e6:.0f} s",
         _percent(row["utilisation"]), f"{float(row['slowdown']):.3f}x", row["simulated_together"],
         f"{float(row['cpu_s']):.0f} s"]
        for row in common.rows("many_jobs")
    ]  # fmt: skip
    head = ["allocator", "network", "makespan", "used", "slow-down", "simulated together", "processor time"]
    return common.table(head, lines, numbers_from=2) if lines else common.missing("many_jobs")


BLOCKS: dict[str, Callable[[], str]] = {
    "fragmentation": fragmentation,
    "fragmentation-claims": fragmentation_claims,
    "many-jobs": many_jobs,
}
