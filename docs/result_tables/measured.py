"""Rows that others measured, predicted by `reproduce validation`."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable

from result_tables import common
from result_tables.common import Row


def predicted() -> list[Row]:
    """Return the rows that were run."""
    return [row for row in common.rows("measured") if row["predicted_us"]]


def spread(found: Iterable[Row]) -> list[str]:
    """Return rows, median and 90th percentile of absolute errors, worst and median error, as cells."""
    errors_found = sorted((float(row["error"]) for row in found), key=abs)
    if not errors_found:
        return ["0", "", "", "", ""]
    sizes = [abs(error) for error in errors_found]
    quantiles = [sizes[0]] * 9 if len(sizes) == 1 else statistics.quantiles(sizes, n=10, method="inclusive")
    return [
        str(len(sizes)), f"{statistics.median(sizes):.1%}".replace("%", " %"),
        f"{quantiles[8]:.1%}".replace("%", " %"), common.signed(1 + errors_found[-1]),
        common.signed(1 + statistics.median(errors_found)),
    ]  # fmt: skip


def is_training(row: Row) -> bool:
    """Return whether a row is a training step, not a collective."""
    return row["family"] not in ("NCCL on H100", "bus bandwidths")


def measured_summary() -> str:
    """Return the errors by source, rows that constants were fitted to apart."""
    found = predicted()
    if not found:
        return common.missing("validation")
    lines = []
    for family in dict.fromkeys(row["family"] for row in found):
        for fitted in ("true", "false"):
            mine = [row for row in found if row["family"] == family and row["fitted"] == fitted]
            if mine:
                lines.append([family, "fitted" if fitted == "true" else "nothing fitted", *spread(mine)])
    held = [row for row in found if row["fitted"] == "false"]
    lines.append(["**all training steps**", "nothing fitted", *spread(filter(is_training, held))])
    lines.append(["**all collectives**", "nothing fitted", *spread(r for r in held if not is_training(r))])
    head = ["measured by", "", "rows", "median", "90th percentile", "worst", "bias"]
    return common.table(head, lines, numbers_from=2)


def measured_rows() -> str:
    """Return every training row that is not of vTrain: measured, predicted, error."""
    lines = [
        [row["family"], row["gpus"], row["setup"], f"{float(row['measured_us']) / 1e3:.1f}",
         f"{float(row['predicted_us']) / 1e3:.1f}",
         common.signed(1 + float(row["error"])) + ("*" if row["fitted"] == "true" else ""), row["assumed"]]
        for row in predicted()
        if is_training(row) and not row["family"].startswith("vTrain")
    ]  # fmt: skip
    head = ["measured by", "GPUs", "what ran", "measured [ms]", "predicted [ms]", "error", "assumed"]
    return common.table(head, lines, numbers_from=3) if lines else common.missing("validation")


def measured_vtrain() -> str:
    """Return the median error of vTrain's rows by tensor-parallel degree and micro-batch."""
    of: dict[tuple[int, int], list[float]] = {}
    for row in predicted():
        if row["family"] == "vTrain, one server" and row["fitted"] == "false":
            degree = re.search(r"TP (\d+)", row["setup"])
            batch = re.search(r"mb (\d+)", row["setup"])
            assert batch
            key = (int(degree[1]) if degree else 1, int(batch[1]))
            of.setdefault(key, []).append(float(row["error"]))
    batches = sorted({batch for _, batch in of})
    lines = [
        [
            f"TP {degree}",
            *(
                common.signed(1 + statistics.median(of[degree, b])) if (degree, b) in of else ""
                for b in batches
            ),
        ]
        for degree in sorted({degree for degree, _ in of})
    ]
    return (
        common.table(["", *(f"mb {batch}" for batch in batches)], lines)
        if lines
        else common.missing("validation")
    )


def measured_worst() -> str:
    """Return the ten training rows with the largest errors, of those that nothing was fitted to."""
    held = [row for row in predicted() if is_training(row) and row["fitted"] == "false"]
    worst = sorted(held, key=lambda row: -abs(float(row["error"])))[:10]
    lines = [
        [row["family"], row["gpus"], row["setup"], common.signed(1 + float(row["error"]))] for row in worst
    ]
    return common.table(["measured by", "GPUs", "what ran", "error"], lines, numbers_from=3)


def measured_not_run() -> str:
    """Return why rows were not run, and how many."""
    reasons: dict[str, list[str]] = {}
    for row in common.rows("measured"):
        if row["reason"]:
            reasons.setdefault(re.sub(r"about \d+", "some", row["reason"]), []).append(row["family"])
    lines = [
        [str(len(families)), ", ".join(dict.fromkeys(families)), reason]
        for reason, families in reasons.items()
    ]
    return common.table(["rows", "measured by", "why they are not run"], lines, numbers_from=3)


def measured_collectives() -> str:
    """Return the errors of collectives by kind, of both halves."""
    found = [row for row in predicted() if not is_training(row)]
    if not found:
        return common.missing("validation")
    lines = []
    for family in dict.fromkeys(row["family"] for row in found):
        for kind in dict.fromkeys(row["setup"].split()[0] for row in found if row["family"] == family):
            for fitted in ("true", "false"):
                mine = [
                    row for row in found
                    if row["family"] == family and row["setup"].split()[0] == kind and row["fitted"] == fitted
                ]  # fmt: skip
                if mine:
                    lines.append([family, kind, "fitted" if fitted == "true" else "", *spread(mine)])
    head = ["measured by", "collective", "", "rows", "median", "90th percentile", "worst", "bias"]
    return common.table(head, lines, numbers_from=3)


BLOCKS: dict[str, Callable[[], str]] = {
    "measured": measured_summary,
    "measured-rows": measured_rows,
    "measured-vtrain": measured_vtrain,
    "measured-worst": measured_worst,
    "measured-not-run": measured_not_run,
    "collectives": measured_collectives,
}
