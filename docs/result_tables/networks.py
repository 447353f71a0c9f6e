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


def layout_prices() -> str:
    """Return what layouts on Elect-Cluster take by the price of counterparts, and what the fastest gains."""
    found = common.rows("layout_prices")
    if not found:
        return common.missing("layout_prices")
    names = {
        "own_us": "all at once",
        "alone_us": "a GPU alone",
        "port_us": "its port",
        "kept_us": "kept",
    }
    lines = [
        [f"{row['bandwidth_gbps']}, {row['uplink_gbps']}", row["mp"]]
        + [f"{float(row[name]) / 1e3:.1f}" for name in names]
        for row in found
    ]
    # The best degree with the price of all GPUs at once, over the best of what is kept. [points]
    ratios = []
    for point in dict.fromkeys((row["bandwidth_gbps"], row["uplink_gbps"]) for row in found):
        mine = [row for row in found if (row["bandwidth_gbps"], row["uplink_gbps"]) == point]
        own_us = min(float(row["own_us"]) for row in mine)
        ratios.append(own_us / min(float(row["kept_us"]) for row in mine))
    most = max(float(row["own_us"]) / float(row["kept_us"]) for row in found)
    return (
        common.table(["GPU, uplink [Gbps]", "mp", *names.values()], lines)
        + f"\nAt one degree the layout that is kept is up to {most:.2f} times as fast as that of all at "
        f"once; at the best degree, which a search takes, up to {max(ratios):.3f} times.\n"
    )


def layout_prices_doubling() -> str:
    """Return what the layout that is kept gains before and after a doubling that makes it slower."""
    found = common.rows("layout_prices_doubling")
    if not found:
        return common.missing("layout_prices_doubling")
    names = {"own_us": "all at once", "alone_us": "a GPU alone", "port_us": "its port", "kept_us": "kept"}
    lines = [
        [f"{row['bandwidth_gbps']} Gbps", *(f"{float(row[name]) / 1e3:.2f}" for name in names), _gain(row)]
        for row in found
    ]
    return common.table(["", *names.values(), "gain"], lines)


def _gain(row: common.Row) -> str:
    """Return by how much the layout that is kept is faster than that of all GPUs at once.

    >>> _gain({"own_us": "4000", "kept_us": "3800"})
    '5.0 %'
    """
    return f"{1 - float(row['kept_us']) / float(row['own_us']):.1%}".replace("%", " %")


BLOCKS: dict[str, Callable[[], str]] = {
    "layout-prices": layout_prices,
    "layout-prices-doubling": layout_prices_doubling,
    "which-network": which_network,
    "network-claims": network_claims,
    "khop-waste": khop_waste,
}
