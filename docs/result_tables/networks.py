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


def network_claims() -> str:
    """Return what the sources of networks claim, and what came of it here."""
    found = common.rows("network_claims")
    if not found:
        return common.missing("network_claims")
    columns = ("network", "claim", "source", "theirs", "ours", "verdict")
    return common.table(columns, [[row[column] for column in columns] for row in found], numbers_from=9)


def khop_waste() -> str:
    """Return the part of the live GPUs that no group can use."""
    found = common.rows("khop_waste")
    if not found:
        return common.missing("khop_waste")
    lines = [
        [f"{row['group']} GPUs", *(f"{row[column]} %" for column in row if column != "group")]
        for row in found
    ]
    return common.table(found[0], lines)


BLOCKS: dict[str, Callable[[], str]] = {
    "which-network": which_network,
    "network-claims": network_claims,
    "khop-waste": khop_waste,
}
