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
    for row in common.rows("left_out"):
        if row["gpu"] == "all":
            lines.append(
                ["**all training steps**", "each source left out in turn", *_left_out_cells(row, worst=True)]
            )
    lines.append(["**all collectives**", "nothing fitted", *spread(r for r in held if not is_training(r))])
    head = ["measured by", "", "rows", "median", "90th percentile", "worst", "bias"]
    return common.table(head, lines, numbers_from=2)


def _held_training() -> list[Row]:
    """Return the training rows that nothing was fitted to."""
    return [row for row in predicted() if is_training(row) and row["fitted"] == "false"]


def _split(name: str, label: Callable[[Row], str], order: Callable[[str], object]) -> str:
    """Return errors of training rows that nothing was fitted to, by a label of each."""
    of: dict[str, list[Row]] = {}
    for row in _held_training():
        of.setdefault(label(row), []).append(row)
    if not of:
        return common.missing("validation")
    lines = [[key, *spread(of[key])] for key in sorted(of, key=order)]  # type: ignore[arg-type]
    return common.table([name, "rows", "median", "90th percentile", "worst", "bias"], lines)


#: GPUs as sources write them, and as we do.
GPUS = {"v100": "V100", "a100": "A100", "h100": "H100", "b200": "B200"}


def _gpu(row: Row) -> str:
    return GPUS[row["gpu"].lower().replace("-", "_").partition("_")[0]]


def measured_by_gpu() -> str:
    """Return the errors by GPU."""
    return _split("GPU", _gpu, list(GPUS.values()).index)


def _degrees(row: Row) -> str:
    """Return which kinds of parallelism a row has, tensor-parallel degrees apart."""
    found = re.findall(r"(TP|CP|PP|DP|EP) (\d+)", row["setup"])
    names = [f"TP {degree}" if name == "TP" else name for name, degree in found]
    return " + ".join(names) or "one GPU"


def measured_by_degrees() -> str:
    """Return the errors by kinds of parallelism."""
    return _split("divided by", _degrees, lambda key: (key.count("+"), key))


def _size(row: Row) -> str:
    gpus = _gpus_of(row)
    return next(name for name, most in SIZES.items() if gpus <= most)


#: Sizes of clusters by what they are called.
SIZES = {"1 GPU": 1, "2 to 8 GPUs": 8, "16 to 64 GPUs": 64, "128 to 512 GPUs": 512, "more": 10**9}


def measured_by_size() -> str:
    """Return the errors by the number of GPUs."""
    return _split("size", _size, list(SIZES).index)


#: Bias beyond which a source is said to be missed.
BIAS = 0.10


def measured_closing() -> str:
    """Return what would have to be true for each source that is biased: one factor at a time."""
    of: dict[str, list[Row]] = {}
    for row in predicted():
        if row["fitted"] == "false" and row["compute_us"]:
            of.setdefault(row["family"], []).append(row)
    lines = []
    for family, mine in of.items():
        bias = statistics.median(float(row["error"]) for row in mine)
        if abs(bias) <= BIAS:
            continue
        lines.append([family, common.signed(1 + bias), *_factors(mine)])
    head = [
        "measured by",
        "bias",
        "compute faster by",
        "waits for communication by",
        "tensor waits hidden",
    ]
    return common.table(head, lines) if lines else "No source of training steps is biased beyond 10 %.\n"


def _factors(mine: list[Row]) -> list[str]:
    """Return, each alone, what makes the median of a source right, as cells.

    The factor on the speed of all kernels, the one on communication that is waited for ("none": even without
    any), and the bias that is left if no tensor-parallel communication were waited for.
    """
    speed, exposed, hidden = [], [], []
    for row in mine:
        measured, predicted_us = float(row["measured_us"]), float(row["predicted_us"])
        compute, waited = float(row["compute_us"]), float(row["exposed_us"])
        speed.append(compute / max(measured - (predicted_us - compute), 1e-9))
        if waited > 0:
            exposed.append((measured - (predicted_us - waited)) / waited)
        hidden.append((predicted_us - float(row["tensor_exposed_us"] or 0)) / measured)
    factor = statistics.median(exposed) if exposed else None
    return [
        f"{statistics.median(speed):.2f}",
        "" if factor is None else (f"{factor:.2f}" if factor > 0 else "none"),
        common.signed(statistics.median(hidden)),
    ]


#: Columns of times that are compared.
TIMES = ("measured_us", "predicted_us")


def measured_scaling() -> str:
    """Return what pairs of rows lose by scaling: the same model and micro-batch on more GPUs."""
    of: dict[tuple[str, str], list[Row]] = {}
    for row in predicted():
        if row["family"] == "llm-foundry MPT":
            model, batch = row["setup"].split(",")[0], row["setup"].rpartition(", ")[2]
            of.setdefault((row["gpu"], f"{model}, {batch}"), []).append(row)
    lines = []
    for (_, setup), mine in of.items():
        first, last = min(mine, key=_gpus_of), max(mine, key=_gpus_of)
        if first["gpus"] != last["gpus"]:
            fitted = "calibrated" if "true" in (first["fitted"], last["fitted"]) else ""
            lines.append(
                [
                    *(_gpu(first), setup, f"{first['gpus']} to {last['gpus']}", fitted),
                    *(common.signed(float(last[us]) / float(first[us])) for us in TIMES),
                ]
            )
    head = ["GPU", "what ran", "GPUs", "", "time, measured", "predicted"]
    return common.table(head, lines, numbers_from=4) if lines else common.missing("validation")


def _gpus_of(row: Row) -> int:
    return int(float(row["gpus"]))


def footprints() -> str:
    """Return memory predicted against published."""
    found = common.rows("footprints")
    lines = [
        [row["published_by"], row["setup"], row["counted"], f"{float(row['published_bytes']) / 2**30:.2f}",
         f"{float(row['predicted_bytes']) / 2**30:.2f}", common.signed(1 + float(row["error"]))]
        for row in found
    ]  # fmt: skip
    head = ["published by", "what ran", "of it", "published [GiB]", "predicted [GiB]", "error"]
    return common.table(head, lines, numbers_from=3) if lines else common.missing("validation")


def _left_out_cells(row: Row, *, worst: bool = False) -> list[str]:
    """Return rows, median, 90th percentile and bias of a source left out; `worst`: an empty cell too."""
    sizes = [f"{float(row[key]):.1%}".replace("%", " %") for key in ("median", "percentile90")]
    return [row["rows"], *sizes, *[""] * worst, common.signed(1 + float(row["bias"]))]


def left_out() -> str:
    """Return the errors of each source with constants refitted to all other sources of its GPU."""
    found = common.rows("left_out")
    lines = []
    for row in found:
        rows, *errors = _left_out_cells(row)
        lines.append([row["gpu"], row["family"], rows, row["factor"], *errors])
    head = ["GPU", "left out", "rows", "rates refitted", "median", "90th percentile", "bias"]
    return common.table(head, lines, numbers_from=2) if lines else common.missing("validation")


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
    worst = sorted(_held_training(), key=lambda row: -abs(float(row["error"])))[:10]
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
    "measured-by-gpu": measured_by_gpu,
    "measured-by-degrees": measured_by_degrees,
    "measured-by-size": measured_by_size,
    "measured-closing": measured_closing,
    "measured-scaling": measured_scaling,
    "footprints": footprints,
    "left-out": left_out,
    "measured-vtrain": measured_vtrain,
    "measured-worst": measured_worst,
    "measured-not-run": measured_not_run,
    "collectives": measured_collectives,
}
