"""How far predictions of a source are off where nothing was fitted to it, but to all other sources.

python benchmarks/leave_one_source_out.py    # docs/results/measured.csv -> docs/results/left_out.csv

For each source, the efficiency of matrix products of its GPU is multiplied by the factor that makes the
median error of the other sources with that GPU zero, each source counting alike, rows that constants were
fitted to and others together. A time is taken to follow the efficiency e as e^-k; k is found by running
rows once more with an efficiency 5 % higher: the three of each source that are quickest to run, of which
the median is taken for all of it. Constants that all GPUs share (the host's time, the memory's share, the
deviation between GPUs) stay.
"""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from sipml_core.plugin import load
from sipml_core.validating import MeasuredRow, measured_rows, predict

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
STEP = 1.05
#: Rows of each source that are run again.
AGAIN = 3


def main() -> None:
    """Write left_out.csv."""
    with (RESULTS / "measured.csv").open(newline="", encoding="utf-8") as file:
        known = {row["name"]: row for row in csv.DictReader(file) if row["predicted_us"]}
    predicted_us = {name: float(row["predicted_us"]) for name, row in known.items()}
    of: dict[tuple[str, str], list[MeasuredRow]] = {}
    for row in measured_rows():
        if row.name in known and not row.collective:
            of.setdefault((_gpu(row), row.family), []).append(row)
    log_errors = {
        key: [math.log(predicted_us[row.name] / row.measured_us) for row in rows] for key, rows in of.items()
    }
    exponents = {
        key: statistics.median(
            math.log(predicted_us[row.name] / _faster_us(row)) / math.log(STEP)
            for row in sorted(rows, key=_work)[:AGAIN]
        )
        for key, rows in of.items()
    }
    factor = {key: _factor(key, log_errors, exponents) for key in of}
    errors = {
        key: [math.expm1(error - exponents[key] * math.log(factor[key] or 1.0)) for error in log_errors[key]]
        for key in of
    }
    lines = [_line(*key, factor[key], errors[key]) for key in of]
    with (RESULTS / "left_out.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(lines, key=lambda line: str(line["gpu"])))
        # Where there is no other source with the GPU nothing can be refitted, and nothing is said.
        writer.writerow(_line("all", "each in turn", None, [e for k in of if factor[k] for e in errors[k]]))


def _work(row: MeasuredRow) -> tuple[float, str]:
    """Return what grows with the time that a row takes to run: sub-ops of a replica; and its name."""
    assert row.tables is not None
    plan, workload = row.tables["plan"], row.tables["workload"]
    layers = workload.get("layers") or workload.get("configuration", {}).get("num_hidden_layers", 24)
    batches = plan["global_batch"] / plan["dp"] / plan.get("micro_batch", plan["global_batch"])
    return layers * plan["mp"] * max(batches, 1.0), row.name


def _gpu(row: MeasuredRow) -> str:
    assert row.tables is not None
    return str(row.tables["gpu"]["name"]).partition("-")[0].upper()


def _faster_us(row: MeasuredRow) -> float:
    """Return the predicted time with matrix products that are more efficient. [us]"""
    registry = load()
    assert row.tables is not None
    gpu = dict(row.tables["gpu"])
    cls = next(each for each in registry.classes("gpu") if each.name == gpu["name"])
    gpu["compute_efficiency"] = {"matmul": cls.compute["matmul"] * STEP}
    found = predict(attrs.evolve(row, tables={**row.tables, "gpu": gpu}), registry)
    assert found.predicted_us, found.reason
    return found.predicted_us


def _factor(
    key: tuple[str, str],
    log_errors: Mapping[tuple[str, str], list[float]],
    exponents: Mapping[tuple[str, str], float],
) -> float | None:
    """Return the factor on the efficiency that all other sources of a GPU ask for; None: there are none."""
    others = [other for other in log_errors if other[0] == key[0] and other != key]
    if not others:
        return None

    def bias(factor: float) -> float:
        """Return the mean over the other sources of their median log error."""
        return statistics.mean(
            statistics.median(log_errors[other]) - exponents[other] * math.log(factor) for other in others
        )

    low, high = 0.5, 2.0
    for _ in range(60):  # by bisection: more efficient products make all times shorter
        middle = math.sqrt(low * high)
        low, high = (middle, high) if bias(middle) > 0 else (low, middle)
    return math.sqrt(low * high)


def _line(gpu: str, family: str, factor: float | None, errors: list[float]) -> dict[str, Any]:
    """Return the line of a source: how far it is off."""
    sizes = sorted(abs(error) for error in errors)
    return {
        "gpu": gpu, "family": family, "rows": len(errors),
        "factor": f"{factor:.3f}" if factor else "",
        "median": round(statistics.median(sizes), 4),
        "percentile90": round(sizes[min(int(0.9 * len(sizes)), len(sizes) - 1)], 4),
        "bias": round(statistics.median(errors), 4),
    }  # fmt: skip


if __name__ == "__main__":
    main()
