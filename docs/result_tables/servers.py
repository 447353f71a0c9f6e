"""GPT measured on V100 servers, and what a doubled bandwidth brings."""

from __future__ import annotations

import csv
from collections.abc import Callable

from result_tables import common
from result_tables.common import Row


def measured() -> dict[str, Row]:
    """Return the measured rows by case."""
    with (common.DOCS.parent / "benchmarks" / "dlperf_v100.csv").open(newline="", encoding="utf-8") as file:
        return {row["case"]: row for row in csv.DictReader(file)}


def case_name(row: Row) -> str:
    """Return what the pages call a measured case."""
    gpus = {1: "one GPU", 8: "one server", 16: "two servers"}[int(row["gpus"])]
    degrees = [f"{kind} {row[key]}" for kind, key in (("DP", "dp"), ("MP", "mp")) if int(row[key]) > 1]
    return (
        f"{row['hidden']} x {row['layers']}, {' x '.join(degrees) or 'batch ' + row['global_batch']}, {gpus}"
    )


def errors(row: Row, per_s: float) -> list[str]:
    """Return the deviation from either framework."""
    return [common.signed(per_s / float(row[f"{name}_per_s"])) for name in ("megatron_lm", "oneflow")]


def validation() -> str:
    """Return measured and predicted throughput, with the errors to both frameworks."""
    known, lines = measured(), []
    for row in common.rows("validation"):
        base = row["assumed"].startswith("as wired")
        if base or row["assumed"].startswith("gradients overlapped"):
            case, per_s = known[row["case"]], float(row["per_s"])
            when = {True: "at the end", False: "overlapped"}[base] if int(case["dp"]) > 1 else ""
            lines.append(
                [case_name(case), when, case["megatron_lm_per_s"], case["oneflow_per_s"], f"{per_s:.2f}",
                 *errors(case, per_s), ", ".join(filter(None, (row["exchange"], row["all_reduce"])))]
            )  # fmt: skip
    head = [
        "GPT, cut, GPUs",
        "gradients",
        "Megatron-LM /s",
        "OneFlow /s",
        "ours /s",
        "to Megatron-LM",
        "to OneFlow",
    ]
    return common.table([*head, "exchange, all-reduce"], lines, numbers_from=2)


def assumptions() -> str:
    """Return what every case becomes with one assumption changed."""
    known = measured()
    lines = [
        [case_name(known[row["case"]]), row["assumed"], f"{float(row['per_s']):.2f}",
         *errors(known[row["case"]], float(row["per_s"]))]
        for row in common.rows("validation")
        if int(known[row["case"]]["gpus"]) > 1
    ]  # fmt: skip
    return common.table(["case", "assumed", "ours /s", "to Megatron-LM", "to OneFlow"], lines, numbers_from=2)


def validation_summary() -> str:
    """Return the spread of the errors inside one server and over two."""
    known, found = measured(), {1: [], 8: [], 16: []}
    for row in common.rows("validation"):
        if row["assumed"].startswith("as wired"):
            case = known[row["case"]]
            for name in ("megatron_lm", "oneflow"):
                found[int(case["gpus"])].append(float(row["per_s"]) / float(case[f"{name}_per_s"]))
    spread = {
        gpus: f"{common.signed(min(ratios))} to {common.signed(max(ratios))}"
        for gpus, ratios in found.items()
    }
    return (
        f"Errors as wired, gradients at the end, to either framework: one GPU {spread[1]} (the rows that the "
        f"GPU's efficiencies come from), one server {spread[8]}, two servers {spread[16]}.\n"
    )


def doublings() -> str:
    """Return the doublings after which a job is more than 2 % slower."""
    found = common.rows("doublings")
    slower = [row for row in found if float(row["fast_us"]) > 1.02 * float(row["slow_us"])]
    lines = [
        [row["network"], f"{row['job']}, mp {row['mp']}, layout `{row['layout']}`",
         f"{float(row['gbps']):g} to {2 * float(row['gbps']):g} Gbps", f"{float(row['slow_us']) / 1e3:.2f}",
         f"{float(row['fast_us']) / 1e3:.2f}", common.signed(float(row["fast_us"]) / float(row["slow_us"]))]
        for row in slower
    ]  # fmt: skip
    head = ["network", "job", "bandwidth", "ms before", "ms after", ""]
    return f"Of {len(found)} doublings {len(slower)}:\n\n" + common.table(head, lines, numbers_from=3)


BLOCKS: dict[str, Callable[[], str]] = {
    "validation": validation,
    "validation-summary": validation_summary,
    "assumptions": assumptions,
    "doublings": doublings,
}
