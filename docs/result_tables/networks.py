"""All networks beside each other."""

from __future__ import annotations

from collections.abc import Callable

from result_tables import common


def which_network() -> str:
    """Return iteration times of three jobs on all networks, and over those of the ideal switch."""
    found = {(row["network"], row["job"]): float(row["iteration_us"]) for row in common.rows("which_network")}
    if not found:
        return common.missing("which_network")
    networks, jobs = (list(dict.fromkeys(key[k] for key in found)) for k in (0, 1))
    lines = [
        [
            network,
            *(
                f"{found[network, job] / 1e3:.1f} ms, {found[network, job] / found['elect-flat', job]:.2f}x"
                for job in jobs
            ),
        ]
        for network in networks
    ]
    return common.table(["network", *jobs], lines)


BLOCKS: dict[str, Callable[[], str]] = {"which-network": which_network}
