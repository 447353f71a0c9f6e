"""Whole jobs by what circuits are planned for, and by who plans them."""

from __future__ import annotations

from collections.abc import Callable

from result_tables import common

#: Rules of `demand_rules`, by column.
NEED_A_RUN = {
    "slack_weight_us": "slack as weight",
    "slack_standing_us": "slack, standing",
    "waiting_1_us": "waiting, 1st",
    "waiting_2_us": "2nd",
    "waiting_3_us": "3rd",
}


def decomposed_jobs() -> str:
    """Return how much longer whole jobs take by steps of a cycle than by `ocs-exact`."""
    found = common.rows("decomposed_jobs")
    if not found:
        return common.missing("decomposed_jobs")
    cells: dict[tuple[str, str], list[str]] = {}
    for row in found:
        cells.setdefault((row["mp"], row["switches"]), []).append(_of_exact(row))
    switches = list(dict.fromkeys(row["switches"] for row in found))
    lines = [
        [f"mp {mp}", *("; ".join(cells.get((mp, count), ["-"])) for count in switches)]
        for mp in dict.fromkeys(row["mp"] for row in found)
    ]
    return common.table(["", *(f"Q = {count}" for count in switches)], lines)


def _of_exact(row: common.Row) -> str:
    """Return an iteration with `ocs-exact`, and what that with cycles takes of it.

    >>> _of_exact({"exact_us": "2000", "decompose_us": "3000"})
    '2.000 ms, 1.50'
    """
    exact_us, decompose_us = float(row["exact_us"]), float(row["decompose_us"])
    return f"{exact_us / 1e3:#.4g} ms, {decompose_us / exact_us:.2f}"


def whole_megatron() -> str:
    """Return iterations of all layers of Megatron by bytes, and what the fastest of four rules takes."""
    found = common.rows("megatron_demand")
    if not found:
        return common.missing("megatron_demand")
    cells = {(row["network"], row["bandwidth_gbps"]): _kept(row) for row in found}
    bandwidths = list(dict.fromkeys(key[1] for key in cells))
    lines = [
        [network, *(cells.get((network, gbps), "-") for gbps in bandwidths)]
        for network in dict.fromkeys(key[0] for key in cells)
    ]
    return common.table(["", *(f"{float(gbps):g} Gbps" for gbps in bandwidths)], lines)


def _kept(row: common.Row) -> str:
    """Return an iteration by bytes, and what the fastest of four rules takes of it.

    >>> _kept({"bytes_us": "2000", "auto_us": "1980"}), _kept({"bytes_us": ""})
    ('2.0 ms, 0.990', 'does not fit')
    """
    if not row["bytes_us"]:
        return "does not fit"
    bytes_us = float(row["bytes_us"])
    return f"{bytes_us / 1e3:.1f} ms, {float(row['auto_us']) / bytes_us:.3f}"


def more_jobs() -> str:
    """Return what the fastest of four rules takes along chains, and on 256 GPUs of switches."""
    found = common.rows("circuit_demand_more")
    if not found:
        return common.missing("circuit_demand_more")
    cells = {
        (f"{row['network']}, {row['gpus']} GPUs, {row['exchange']}", row["bandwidth_gbps"]): _kept(row)
        for row in found
    }
    bandwidths = sorted({key[1] for key in cells}, key=float)
    lines = [
        [job, *(cells.get((job, gbps), "") for gbps in bandwidths)]
        for job in dict.fromkeys(key[0] for key in cells)
    ]
    return common.table(["mp 4", *(f"{float(gbps):g} Gbps" for gbps in bandwidths)], lines)


def demand_rules() -> str:
    """Return what rules that need a run before take of bytes, beside the fastest of four."""
    found, best = common.rows("demand_rules"), common.rows("circuit_demand")
    if not found or not best:
        return common.missing("demand_rules")
    fastest = {_job(row): _of_bytes(row, "auto_us") for row in best}
    lines = [
        [
            f"{row['network']}, mp {row['mp']}, {float(row['bandwidth_gbps']):g} Gbps",
            f"{float(row['bytes_us']) / 1e3:.1f}",
            *(_of_bytes(row, column) for column in NEED_A_RUN),
            fastest.get(_job(row), "-"),
            f"{float(row['pairs_without_slack']):.0%}".replace("%", " %"),
            f"{float(row['slack_weights_spread']):.1f}",
        ]
        for row in found
    ]
    header = ["", "bytes [ms]", *NEED_A_RUN.values(), "`auto`", "pairs without slack", "weights differ"]
    return common.table(header, lines)


def _job(row: common.Row) -> tuple[str, float, float, float]:
    return row["network"], float(row["gpus"]), float(row["mp"]), float(row["bandwidth_gbps"])


def _of_bytes(row: common.Row, column: str) -> str:
    """Return what a rule takes of bytes; a run that was stopped took twice as long or more.

    >>> _of_bytes({"bytes_us": "4", "slack_us": "5"}, "slack_us"), _of_bytes({"slack_us": ""}, "slack_us")
    ('1.25', '> 2')
    """
    return f"{float(row[column]) / float(row['bytes_us']):.2f}" if row[column] else "> 2"


def exhaustive_search() -> str:
    """Return iterations by degree in one pass of layout and circuits, in turn, and of the best layout."""
    found = common.rows("exhaustive_search")
    if not found:
        return common.missing("exhaustive_search")
    degrees = list(dict.fromkeys(row["mp"] for row in found))
    cells = {(row["network"], row["bandwidth_gbps"], row["mp"]): _three(row) for row in found}
    lines = [
        [f"{network}, {float(gbps):g} Gbps", *(cells[network, gbps, mp] for mp in degrees)]
        for network, gbps in dict.fromkeys(key[:2] for key in cells)
    ]
    return common.table(["", *(f"mp {mp}" for mp in degrees)], lines)


def _three(row: common.Row) -> str:
    """Return three iterations, or one where they are the same.

    >>> _three({"once_us": "3000", "turns_us": "2000", "least_us": "2000"})
    '3.000, 2.000, 2.000'
    >>> _three({"once_us": "3000", "turns_us": "3000", "least_us": "3000"})
    '3.000'
    >>> _three({"once_us": "", "turns_us": "", "least_us": "inf"})
    '-'
    """
    if not row["once_us"]:
        return "-"
    times = [f"{float(row[column]) / 1e3:#.4g}" for column in ("once_us", "turns_us", "least_us")]
    return times[0] if len(set(times)) == 1 else ", ".join(times)


def exhaustive_search_verdict() -> str:
    """Return how far a search is from the best of all degrees and layouts, and from that of each degree."""
    found = [row for row in common.rows("exhaustive_search") if row["once_us"]]
    if not found:
        return common.missing("exhaustive_search")
    # Of each network and bandwidth, and of each degree above 1, by way: over the best, less 1.
    searches: dict[str, list[float]] = {"once": [], "turns": []}
    for place in dict.fromkeys((row["network"], row["bandwidth_gbps"]) for row in found):
        mine = [row for row in found if (row["network"], row["bandwidth_gbps"]) == place]
        for way, over in searches.items():
            over.append(_least(mine, way) / _least(mine, "least") - 1)
    hybrid = [row for row in found if float(row["mp"]) > 1]
    each = {way: [_least([row], way) / _least([row], "least") - 1 for row in hybrid] for way in searches}
    near = {way: sum(ratio < 0.01 for ratio in over) for way, over in each.items()}
    farthest = max(hybrid, key=lambda row: float(row["turns_us"]) / float(row["least_us"]))
    worst = {way: max(over) for way, over in searches.items()}
    place = f"{farthest['network']}, {float(farthest['bandwidth_gbps']):g} Gbps, mp {farthest['mp']}"
    text = (
        f"Of {len(searches['turns'])} searches over all degrees the farthest from the best of all takes "
        f"{worst['turns']:.1%} longer in turn, {worst['once']:.1%} in one pass. Of the degrees above 1, "
        f"{len(hybrid)} cases, {near['turns']} are within 1% of the best layout in turn and "
        f"{near['once']} in one pass; the farthest takes {max(each['turns']):.0%} longer ({place}).\n"
    )
    return text.replace("%", " %")


def _least(rows: list[common.Row], way: str) -> float:
    return min(float(row[f"{way}_us"]) for row in rows)


#: Gains below this are not listed, nor losses.
_LISTED = 0.001


def circuits_ahead() -> str:
    """Return the jobs that gain or lose with circuits for the next phase on what a plan leaves idle."""
    found = [row for row in common.rows("circuits_ahead") if row["ahead_us"] and row["now_us"]]
    if not found:
        return common.missing("circuits_ahead")
    gains = [(row, 1 - float(row["ahead_us"]) / float(row["now_us"])) for row in found]
    listed = sorted((each for each in gains if abs(each[1]) >= _LISTED), key=lambda each: -each[1])
    lines = [
        [
            row["job"],
            f"`{row['replan']}`",
            f"{float(row['reconfiguration_us']):g} us",
            *(f"{float(row[column]) / 1e3:.1f}" for column in ("now_us", "ahead_us")),
            f"{gain:+.1%}".replace("%", " %"),
        ]
        for row, gain in listed
    ]
    head = ["job", "`replan`", "r", "without [ms]", "with [ms]", "gain"]
    told = f"Of {len(found)} rows {len(listed)} change by 0.1 % or more:\n\n"
    return told + common.table(head, lines, numbers_from=2)


BLOCKS: dict[str, Callable[[], str]] = {
    "decomposed-jobs": decomposed_jobs,
    "whole-megatron": whole_megatron,
    "circuit-demand-more": more_jobs,
    "demand-rules": demand_rules,
    "circuits-ahead": circuits_ahead,
    "exhaustive-search": exhaustive_search,
    "exhaustive-search-verdict": exhaustive_search_verdict,
}
