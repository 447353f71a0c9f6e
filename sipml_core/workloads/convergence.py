"""Steps to the target accuracy as a function of the global batch.

A curve is what training takes in samples, E(B), at some batches B; steps are E(B) / B. Between
measured batches E is interpolated linearly, because the law that all measured curves follow within
a few per cent, E(B) = E0 (1 + B / Bc), is linear in B (McCandlish et al. 2018, "An empirical model
of large-batch training", section 2). Outside, that law is used with the E0 and Bc of least
relative squares, and the result says so.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError, unknown
from sipml_core.fields import between, file_path, float64_vector, frozen, option, read_table
from sipml_core.plugin import Convergence

#: Samples in one unit of each measured amount: images of ImageNet in an epoch, and sequences of
#: 2048 tokens (FACTS of the table: MLPerf reference convergence points).
SAMPLES_PER_UNIT = {"epochs": 1_281_167.0, "samples": 1.0, "sequences": 1.0, "tokens": 1.0 / 2048.0}
#: More text than there is.
MAX_TRAINING_TOKENS = 1e18
SOURCE = "MLPerf reference convergence points, github.com/mlcommons/logging commit 7bbf7926"
#: The curve through the paper's anchor, and no curve.
PAPER, NONE = "paper", "none"


@frozen(kw_only=True, eq=False)
class Curve:
    """Measured points of one model: samples to the target at each global batch, batches rising."""

    batches: NDArray[np.float64] = attrs.field(converter=float64_vector)
    samples: NDArray[np.float64] = attrs.field(converter=float64_vector)
    source: str

    @property
    def law(self) -> tuple[float, float]:
        """E0 [samples] and its rise E0 / Bc [samples per unit of batch], neither negative."""
        if len(self.batches) == 1:
            return float(self.samples[0]), 0.0
        rise, e0 = np.polyfit(self.batches, self.samples, 1, w=1.0 / self.samples)
        if rise < 0:
            return float(self.samples.mean()), 0.0
        if e0 < 0:
            return 0.0, float(self.batches @ self.samples / (self.batches @ self.batches))
        return float(e0), float(rise)

    def measured(self, global_batch: float) -> bool:
        """The batch lies inside the measured range."""
        return bool(self.batches[0] <= global_batch <= self.batches[-1])

    def samples_at(self, global_batch: float) -> float:
        """Samples to the target accuracy."""
        if self.measured(global_batch):
            return float(np.interp(global_batch, self.batches, self.samples))
        e0, rise = self.law
        return e0 + rise * global_batch

    def at(self, global_batch: int) -> Convergence:
        """Steps to the target accuracy."""
        _check_batch(global_batch)
        return Convergence(
            steps=self.samples_at(global_batch) / global_batch,
            extrapolated=not self.measured(global_batch),
            source=self.source,
        )


@frozen(kw_only=True, eq=False)
class AnchoredCurve:
    """The shape of a measured curve, scaled to pass through one known point."""

    shape: Curve
    global_batch: int
    steps: float
    source: str

    def at(self, global_batch: int) -> Convergence:
        """Steps to the target accuracy; measured at the anchor only."""
        _check_batch(global_batch)
        growth = self.shape.samples_at(global_batch) / self.shape.samples_at(self.global_batch)
        return Convergence(
            steps=self.steps * growth * self.global_batch / global_batch,
            extrapolated=global_batch != self.global_batch,
            source=self.source,
        )


def curve_option(default: str) -> Any:
    """The option `curve` of a workload."""
    return file_path(
        default,
        doc="steps to accuracy: 'paper' (through the paper's anchor), the measured curve of this very model "
        f"({', '.join(MEASURED)}), a CSV file with columns global_batch, steps (a relative name counts "
        "from the folder of the experiment file), or 'none': time for a number of tokens is reported instead",
        endings=(".csv",),
    )


def tokens_option() -> Any:
    """The option `training_tokens` of a language model: by default those of GPT-3 (Brown et al. 2020)."""
    return option(
        300e9, unit="tokens", validator=between(1, MAX_TRAINING_TOKENS),
        doc="tokens whose training time is reported where there is no convergence curve",
    )  # fmt: skip


def load_curve(
    name: str, *, measured: str, anchor: tuple[int, float], own: tuple[str, ...] = ()
) -> Curve | AnchoredCurve | None:
    """The curve an option names; None for "none".

    Parameters
    ----------
    name
        ``"paper"``, ``"none"``, a measured model, or the path of a CSV file.
    measured
        Measured model whose shape the paper's curve takes.
    anchor
        Global batch and steps that the paper gives.
    own
        Measured models that this model is: the curve of another one is refused.

    Raises
    ------
    ConfigError
        No such curve, it is another model's, or the file is missing or malformed.
    """
    if name == NONE:
        return None
    if name == PAPER:
        batch, steps = anchor
        return AnchoredCurve(
            shape=measured_curves()[measured],
            global_batch=batch,
            steps=steps,
            source=f"SiP-ML paper and its simulator's scripts: {steps:g} steps at batch {batch}; "
            f"other batches by the shape of {measured} ({SOURCE})",
        )
    if name in own:
        return measured_curves()[name]
    if name in MEASURED:
        raise ConfigError(
            f"curve: {name!r} was measured for another model; allowed: {', '.join((PAPER, NONE, *own))}, or "
            "the path of a .csv file with global_batch, steps of this one"
        )
    if name.lower().endswith(".csv"):
        return _user_curve(Path(name))
    raise ConfigError(unknown("curve", name, (PAPER, NONE, *MEASURED)) + ", or the path of a .csv file")


def convergence_at(curve: Curve | AnchoredCurve | None, global_batch: int) -> Convergence | None:
    """What a curve says of one batch; None without a curve. `ConfigError` if that is no batch."""
    _check_batch(global_batch)
    return None if curve is None else curve.at(global_batch)


@cache
def measured_curves() -> Mapping[str, Curve]:
    """All measured curves, by model."""
    text = files("sipml_core.workloads").joinpath("convergence.csv").read_text(encoding="utf-8")
    points: dict[str, list[tuple[float, float]]] = {}
    for row in csv.DictReader(text.splitlines()):
        samples = float(row["mean"]) * SAMPLES_PER_UNIT[row["unit"]]
        points.setdefault(row["model"], []).append((float(row["global_batch"]), samples))
    return {model: _curve(rows, f"{model}: {SOURCE}{NOTES.get(model, '')}") for model, rows in points.items()}


#: What must be said beside the numbers of a model.
NOTES = {"gpt3_175b": "; a short run from a checkpoint, compare batches with it, not absolute times"}

#: Models of convergence.csv.
MEASURED = ("resnet50", "bert_large", "gpt3_175b", "llama31_405b", "llama31_8b")


def _user_curve(path: Path) -> Curve:
    points: dict[float, float] = {}
    for line, _, (batch, steps) in read_table(path, key="curve", numbers=["global_batch", "steps"]):
        if batch in points:
            raise ConfigError(f"curve: {str(path)!r} line {line}: global_batch {batch:g} is given twice")
        points[batch] = batch * steps
    return _curve(points.items(), f"table {path}")


def _curve(points: Iterable[tuple[float, float]], source: str) -> Curve:
    batches, samples = zip(*sorted(points), strict=True)
    return Curve(batches=batches, samples=samples, source=source)


def _check_batch(global_batch: int) -> None:
    if global_batch < 1:
        raise ConfigError(f"global_batch must be at least 1, got {global_batch}")
