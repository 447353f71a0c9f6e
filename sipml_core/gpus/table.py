"""A GPU known by measured op times (the paper's profiles, section 4.2)."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from sipml_core.errors import ConfigError, nearest
from sipml_core.fields import file_path, frozen, option, parse_bytes, positive, read_table
from sipml_core.model import OpWork, Phase
from sipml_core.plugin import GpuModel


class TableGpu(GpuModel):
    """Times by op and batch from a CSV file with the columns op, batch, time_us.

    Between measured batches time is interpolated; below the smallest and above the largest it is
    proportional to the batch, except for optimizer ops, which do not depend on it. Along any other
    dimension an op's time is split linearly (paper, section 3.2, i).
    """

    name = "table"
    summary = "measured op times from a CSV file: op, batch, time_us"

    @frozen(kw_only=True)
    class Options:
        """Where the measurements are."""

        file: str = file_path(
            doc="CSV file with columns op, batch, time_us, one row for each measurement; a relative name "
            "counts from the folder of the experiment file"
        )
        memory: float = option(
            "32 GB", doc="device memory", unit="bytes", validator=positive, converter=parse_bytes
        )

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._profile = _read(Path(options.file))

    @property
    def memory_bytes(self) -> float:
        """Device memory. [bytes]"""
        return float(self.options.memory)

    def op_time_us(self, work: OpWork) -> float:
        """The measured time; `ConfigError` if the table has no such op. [us]"""
        if work.op not in self._profile:
            close = nearest(work.op, self._profile)
            hint = f"; nearest: {close!r}" if close else ""
            raise ConfigError(f"gpu.file: {self.options.file!r} has no rows for op {work.op!r}{hint}")
        batches, times_us = self._profile[work.op]
        time_us = float(np.interp(work.samples, batches, times_us))
        if work.phase is not Phase.OPTIMIZER:
            time_us *= work.samples / min(max(work.samples, batches[0]), batches[-1])
        return time_us * work.fraction

    def extrapolation(self, work: OpWork) -> float:
        """How far the samples lie outside the measured batches of the op, as a factor."""
        batches, _ = self._profile[work.op]
        if work.phase is Phase.OPTIMIZER:
            return 1.0
        return max(1.0, work.samples / batches[-1], batches[0] / work.samples)


def _read(path: Path) -> dict[str, tuple[list[float], list[float]]]:
    """Op -> batches, rising, and the time at each. [us]"""
    points: dict[str, dict[float, float]] = defaultdict(dict)
    for line, (op,), (batch, time_us) in read_table(
        path, key="gpu.file", text=["op"], numbers=["batch", "time_us"]
    ):
        if batch in points[op]:
            raise ConfigError(f"gpu.file: {str(path)!r} line {line}: op {op!r} has batch {batch:g} twice")
        points[op][batch] = time_us
    return {op: (sorted(times), [times[b] for b in sorted(times)]) for op, times in points.items()}
