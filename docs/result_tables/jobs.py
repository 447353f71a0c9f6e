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


def sharing_errors() -> str:
    """Return how far jobs are from those of which nothing is left out."""
    found = [row for row in common.rows("sharing_errors") if row["left_out"]]
    if not found:
        return common.missing("sharing_errors")
    lines = [
        [row["allocator"], row["left_out"], row["simulated_together"]]
        + [f"{float(row[f'error_{name}']):.1%}".replace("%", " %") for name in ("mean", "most")]
        + [common.signed(1 + float(row[f"error_{name}"])) for name in ("slowdown", "makespan")]
        for row in found
    ]
    head = ["allocator", "left out", "simulated together", "iteration, mean", "at most"]
    return common.table([*head, "slow-down, mean", "makespan"], lines, numbers_from=2)


def sharing_errors_verdict() -> str:
    """Return the errors of what `share` does."""
    found = [row for row in common.rows("sharing_errors") if row["left_out"] == "all"]
    if not found:
        return common.missing("sharing_errors")
    each = (
        f"{float(row['error_mean']):.1%} in the mean and {float(row['error_most']):.0%} at most with "
        f"`{row['allocator']}` (slow-down {float(row['slowdown']):.2f}x)"
        for row in found
    )
    return f"The time of an iteration is wrong by {', '.join(each)}.\n".replace("%", " %")


BLOCKS: dict[str, Callable[[], str]] = {
    "fragmentation": fragmentation,
    "fragmentation-claims": fragmentation_claims,
    "many-jobs": many_jobs,
    "sharing-errors": sharing_errors,
    "sharing-errors-verdict": sharing_errors_verdict,
}
