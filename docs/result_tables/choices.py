"""Choices of a job compared: how ops are cut, how transfers wait for a port, what a search simulates."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from result_tables import common

MODELS = {"resnet50": "ResNet-50", "transformer": "Transformer"}


def layouts() -> str:
    """Return iterations with the layouts by cost, along samples, and of tensor parallelism."""
    found = common.rows("layouts")
    if not found:
        return common.missing("layouts")
    names = list(dict.fromkeys(row["layout"] for row in found))
    times = {
        (row["bandwidth_gbps"], row["model"], row["layout"]): f"{float(row['iteration_us']) / 1e3:.1f}"
        for row in found
    }
    lines = [
        [
            f"{float(gbps):g} Gbps",
            *(" / ".join(times[gbps, model, name] for name in names) + " ms" for model in MODELS),
        ]
        for gbps in dict.fromkeys(key[0] for key in times)
    ]
    return common.table(["B", *(f"{model} {' / '.join(names)}" for model in MODELS.values())], lines)


def queue_disciplines() -> str:
    """Return iterations with one transfer at a time per pair, and per sending GPU, on four networks."""
    found = common.rows("queue_disciplines")
    if not found:
        return common.missing("queue_disciplines")
    networks = list(dict.fromkeys(row["network"] for row in found))
    cells = {
        (f"{row['model']}, {row['layout']}, {row['bandwidth_gbps']} Gbps", row["network"]): _both(row)
        for row in found
    }
    lines = [
        [job, *(cells[job, network] for network in networks)]
        for job in dict.fromkeys(key[0] for key in cells)
    ]
    return common.table(["model, layout, B", *networks], lines)


def _both(row: common.Row) -> str:
    """Return both iterations, and how much longer the one with a queue for each sender is.

    >>> _both({"pair_us": "2000", "source_us": "3000"})
    '2.0 / 3.0 (+50%)'
    """
    pair_ms, source_ms = (float(row[column]) / 1e3 for column in ("pair_us", "source_us"))
    return f"{pair_ms:.1f} / {source_ms:.1f} ({source_ms / pair_ms - 1:+.0%})"


def layout_rounds() -> str:
    """Return iterations on circuits with layouts of one round, of several, and of any prices."""
    found, _ = _on_circuits_and_not()
    if not found:
        return common.missing("layout_rounds")
    times = {
        (row["job"], row["network"], row["bandwidth_gbps"]): ", ".join(
            f"{float(row[column]) / 1e3:#.4g}" for column in ("once_us", "rounds_us", "least_us")
        )
        for row in found
    }
    places = list(dict.fromkeys(key[1:] for key in times))
    lines = [
        [job, *(times[job, *place] for place in places)] for job in dict.fromkeys(key[0] for key in times)
    ]
    return common.table(["", *(f"{network}: {float(gbps):g} Gbps" for network, gbps in places)], lines)


def layout_rounds_verdict() -> str:
    """Return how many rounds were enough, and how far the kept layouts are from the best of any prices."""
    found, switched = _on_circuits_and_not()
    if not found:
        return common.missing("layout_rounds")
    gained = [row for row in found if float(row["rounds_us"]) < float(row["once_us"])]
    over = {
        f"{row['job']}, {row['network']}, {float(row['bandwidth_gbps']):g} Gbps": _over_least(row)
        for row in found
    }
    worst = max(over, key=lambda name: over[name])
    near = sum(ratio < 1.01 for ratio in over.values())
    rounds = max(float(row["kept_round"]) for row in found)
    return (
        f"More rounds gain in {len(gained)} of {len(found)}; no layout after round {rounds:g} was kept. "
        f"In {near} the kept one is within 1 % of the best; the farthest is {worst}, by "
        f"{over[worst] - 1:.0%}. {_of_one_price(switched)}\n".replace("%.", " %.")
    )


def _on_circuits_and_not() -> tuple[list[common.Row], list[common.Row]]:
    """Return the rows of networks with circuits, and of the ideal switch."""
    found = common.rows("layout_rounds")
    return [row for row in found if row["network"] != "Elect-Flat"], [
        row for row in found if row["network"] == "Elect-Flat"
    ]


def _of_one_price(rows: list[common.Row]) -> str:
    """Return how much longer a switch with one price takes than with any: at its least bandwidth, above."""
    least_gbps = min(float(row["bandwidth_gbps"]) for row in rows)
    low = max(_over_least(row) for row in rows if float(row["bandwidth_gbps"]) == least_gbps)
    above = max(_over_least(row) for row in rows if float(row["bandwidth_gbps"]) > least_gbps)
    return (
        f"Elect-Flat gives what its one price says, and has one layout: at {least_gbps:g} Gbps it takes "
        f"up to {low - 1:.1%} longer than with the best of any prices, above up to {above - 1:.1%}.".replace(
            "% l", " % l"
        )
    )


def _over_least(row: common.Row) -> float:
    """Return an iteration with rounds over the best of any prices.

    >>> _over_least({"rounds_us": "30", "least_us": "20"})
    1.5
    """
    return float(row["rounds_us"]) / float(row["least_us"])


def search_estimates() -> str:
    """Return by network how far estimates are from simulations, and what a search that trusts them loses."""
    found = common.rows("search_estimates")
    if not found:
        return common.missing("search_estimates")
    lines = []
    for network in dict.fromkeys(row["network"] for row in found):
        mine = sorted((row for row in found if row["network"] == network), key=_error)
        degrees = {float(row["mp"]) for row in mine}
        pure = [row for row in mine if float(row["mp"]) == min(degrees)]
        hybrid = [row for row in mine if row not in pure]
        size = statistics.median(abs(_error(row)) for row in hybrid)
        cells = (f"{_error(pure[0]):+.1%} to {_error(pure[-1]):+.1%}", _told(hybrid[0]), _told(hybrid[-1]))
        losses = (f"{worst_choice(mine, top):.1%}" for top in (1, 4))
        lines.append([network, *(*cells, f"{size:.1%}", *losses)])
    header = [
        "network",
        "pure data parallelism",
        "mp > 1: least",
        "most",
        "median size",
        "top 1 loses",
        "top 4",
    ]
    return common.table(header, [[cell.replace("%", " %") for cell in line] for line in lines])


def _error(row: common.Row) -> float:
    return float(row["estimate_s"]) / float(row["simulated_s"]) - 1


def _told(row: common.Row) -> str:
    """Return an error with its candidate.

    >>> job = {"workload": "resnet50", "mp": "2", "global_batch": "64", "bandwidth_gbps": "256.0"}
    >>> _told({**job, "estimate_s": "3", "simulated_s": "2"})
    '+50.0% (ResNet-50, mp 2, batch 64, 256 Gbps)'
    """
    model = MODELS.get(row["workload"], row["workload"])
    job = f"{model}, mp {row['mp']}, batch {row['global_batch']}, {float(row['bandwidth_gbps']):g} Gbps"
    return f"{_error(row):+.1%} ({job})"


def worst_choice(rows: Sequence[common.Row], top: int) -> float:
    """Return how much longer the best of the `top` estimated first takes than the best of all, at worst.

    >>> job = {"workload": "resnet50", "bandwidth_gbps": "256"}
    >>> both = [{**job, "estimate_s": k, "simulated_s": s} for k, s in (("1", "3"), ("2", "2"))]
    >>> worst_choice(both, 1), worst_choice(both, 2)
    (0.5, 0.0)
    """
    losses = []
    for case in {(row["workload"], row["bandwidth_gbps"]) for row in rows}:
        mine = [row for row in rows if (row["workload"], row["bandwidth_gbps"]) == case]
        mine.sort(key=lambda row: float(row["estimate_s"]))
        times = [float(row["simulated_s"]) for row in mine]
        losses.append(min(times[:top]) / min(times) - 1)
    return max(losses)


BLOCKS: dict[str, Callable[[], str]] = {
    "search-estimates": search_estimates,
    "layouts": layouts,
    "queue-disciplines": queue_disciplines,
    "layout-rounds": layout_rounds,
    "layout-rounds-verdict": layout_rounds_verdict,
}
