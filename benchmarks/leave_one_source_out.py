"""How far predictions of a source are off where nothing was fitted to it, but to all other sources.

python benchmarks/leave_one_source_out.py    # docs/results/measured.csv -> docs/results/left_out.csv

For each source, the efficiency of matrix products of its GPU is multiplied by the factor that makes the
median error of the other sources with that GPU zero, each source counting alike, rows that constants were
fitted to and others together. A time is taken to follow the efficiency e as e^-k; k of each row is found by
running it once more with an efficiency 5 % higher (of vTrain's many rows on one server, every sixteenth).
Constants that all GPUs share (the host's time, the memory's share, the deviation between GPUs) stay.
"""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from sipml_core.plugin import load
from sipml_core.validating import MeasuredRow, measured_rows, predict

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
STEP = 1.05
#: Of vTrain's rows on one server one in so many is run again.
SAMPLE = 16


def main() -> None:
    """Write left_out.csv."""
    with (RESULTS / "measured.csv").open(newline="", encoding="utf-8") as file:
        known = {row["name"]: row for row in csv.DictReader(file) if row["predicted_us"]}
    log_error, exponent, of = {}, {}, {}
    for row in _sampled(known):
        predicted_us = float(known[row.name]["predicted_us"])
        log_error[row.name] = math.log(predicted_us / row.measured_us)
        exponent[row.name] = math.log(predicted_us / _faster_us(row)) / math.log(STEP)
        of.setdefault((_gpu(row), row.family), []).append(row.name)
    lines = [_left_out(key, of, log_error, exponent) for key in of]
    with (RESULTS / "left_out.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(lines, key=lambda line: line["gpu"]))


def _sampled(known: Mapping[str, Any]) -> Iterator[MeasuredRow]:
    """Yield training rows that were run."""
    rows = [row for row in measured_rows() if row.name in known and not row.collective]
    server = [row for row in rows if row.family == "vTrain, one server"]
    yield from server[::SAMPLE]
    yield from (row for row in rows if row not in server)


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


def _left_out(
    key: tuple[str, str],
    of: Mapping[tuple[str, str], list[str]],
    log_error: Mapping[str, float],
    exponent: Mapping[str, float],
) -> dict[str, Any]:
    """Return the errors of one source, with the efficiency that all other sources of its GPU ask for."""
    others = [names for (gpu, family), names in of.items() if gpu == key[0] and family != key[1]]

    def bias(factor: float) -> float:
        """Return the mean over the other sources of their median log error."""
        return statistics.mean(
            statistics.median(log_error[name] - exponent[name] * math.log(factor) for name in names)
            for names in others
        )

    low, high = 0.5, 2.0
    for _ in range(60 if others else 0):  # by bisection: more efficient products make all times shorter
        middle = math.sqrt(low * high)
        low, high = (middle, high) if bias(middle) > 0 else (low, middle)
    factor = math.sqrt(low * high)
    errors = [math.expm1(log_error[name] - exponent[name] * math.log(factor)) for name in of[key]]
    sizes = sorted(abs(error) for error in errors)
    return {
        "gpu": key[0], "family": key[1], "rows": len(errors),
        "factor": f"{factor:.3f}" if others else "",
        "median": round(statistics.median(sizes), 4),
        "percentile90": round(sizes[min(int(0.9 * len(sizes)), len(sizes) - 1)], 4),
        "bias": round(statistics.median(errors), 4),
    }  # fmt: skip


if __name__ == "__main__":
    main()
