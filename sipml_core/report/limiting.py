"""What takes most of an iteration: the answer to why it is not faster."""

from __future__ import annotations

from sipml_core.model import CaseResult

#: A second cause is named from so much of an iteration on.
WORTH_NAMING = 0.05


def bound_by(row: CaseResult) -> str:
    """Return what a GPU does in most of an iteration, with its part, and what comes next.

    "communication" is time in which it only communicates, "dark circuits" in which it only waits for those,
    "host" in which its next op is not yet issued, "pipeline" and, with one stage, "idle" in which it does
    nothing else. Empty where the case did not run.
    """
    if not row.iteration_us:
        return ""
    waits = "pipeline" if (row.pp or 1) > 1 else "idle"
    parts = {
        "compute": row.compute_us,
        "communication": row.exposed_us,
        "dark circuits": row.dark_us,
        "host": row.host_wait_us,
        waits: (row.idle_us or 0.0) - (row.host_wait_us or 0.0),
    }
    shares = [(name, (time_us or 0.0) / row.iteration_us) for name, time_us in parts.items()]
    first, second, *_ = sorted(shares, key=lambda part: -part[1])
    named = [first, second] if second[1] >= WORTH_NAMING else [first]
    return ", ".join(f"{name} {share:.0%}" for name, share in named)
