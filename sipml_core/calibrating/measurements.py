"""Files of measurements: output of nccl-tests as it is, and CSV files of measured steps."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from pathlib import Path

from sipml_core.errors import ConfigError, nearest, shown
from sipml_core.fields import frozen

#: Programmes of nccl-tests, and what they call.
PROGRAMMES = {
    "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all", "broadcast": "broadcast", "reduce": "reduce", "sendrecv": "send",
}  # fmt: skip
#: Columns that a CSV file of steps has; any other is a SECTION.KEY that is set.
_STEP_COLUMNS = ("experiment", "topology", "workload", "iteration_ms")


@frozen(kw_only=True)
class MeasuredCall:
    """A collective that was measured."""

    kind: str
    ranks: int
    size_bytes: float
    time_us: float
    #: File and line.
    where: str


@frozen(kw_only=True)
class MeasuredStep:
    """A training step that was measured."""

    #: Experiment file that describes it; the workload and the topology by label, None: the first.
    experiment: Path
    workload: str | None
    topology: str | None
    #: SECTION.KEY -> value, in addition.
    set: Mapping[str, str]
    time_us: float
    where: str


def read_measurements(path: Path) -> tuple[list[MeasuredCall], list[MeasuredStep]]:
    """Return what a file holds: CSV files hold steps, all others the output of nccl-tests.

    Raises
    ------
    ConfigError
        Naming the line at fault.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {str(path)!r}: {getattr(error, 'strerror', error)}") from None
    if path.suffix == ".csv":
        return [], _steps(text, path)
    return _calls(text, path), []


def _calls(text: str, path: Path) -> list[MeasuredCall]:
    """Return the out-of-place times of an output of nccl-tests."""
    lines = text.splitlines()
    comments = "\n".join(line for line in lines if line.lstrip().startswith("#"))
    ranks = len(re.findall(r"^#\s+Rank\s+\d+", comments, re.M))
    found: list[MeasuredCall] = []
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or not words[0].isdigit():
            continue
        where = f"{path} line {number}"
        if ranks < 2:
            raise ConfigError(
                f"{where}: no ranks are known: the lines '#  Rank  0 ...' that nccl-tests print first are "
                "missing, or there is one rank only"
            )
        found.append(_call(words, ranks, comments, path, where))
    if not found:
        raise ConfigError(f"{path}: no line of nccl-tests (size, count, type, redop, root, time, ...)")
    return found


def _call(words: list[str], ranks: int, comments: str, path: Path, where: str) -> MeasuredCall:
    # size count type redop root time algbw busbw wrong, then the same in place.
    if len(words) < 8:
        raise ConfigError(
            f"{where}: must have size, count, type, redop, root, time, algbw, busbw; got {len(words)} columns"
        )
    try:
        size, time_us, algbw, busbw = (float(words[column]) for column in (0, 5, 6, 7))
    except ValueError:
        raise ConfigError(
            f"{where}: size, time, algbw and busbw must be numbers, got {shown(' '.join(words[:8]))}"
        ) from None
    if size <= 0 or time_us <= 0:
        raise ConfigError(f"{where}: size and time must be positive, got {size:g} B in {time_us:g} us")
    kind = _kind(f"{path.name} {comments}", words[3], algbw, busbw, ranks)
    if kind is None:
        raise ConfigError(
            f"{where}: which collective is unclear; name the file after its programme: "
            f"{', '.join(f'{name}_perf' for name in PROGRAMMES)}"
        )
    return MeasuredCall(kind=kind, ranks=ranks, size_bytes=size, time_us=time_us, where=where)


def _kind(named: str, redop: str, algbw: float, busbw: float, ranks: int) -> str | None:
    """Return the collective: by the name of a programme, or by its operation and busbw over algbw.

    >>> _kind("log.txt", "sum", 100.0, 175.0, ranks=8), _kind("log.txt", "none", 100.0, 87.0, ranks=8)
    ('all_reduce', None)
    >>> _kind("alltoall_perf.txt", "none", 100.0, 87.0, ranks=8)
    'all_to_all'
    """
    for programme in sorted(PROGRAMMES, key=len, reverse=True):
        if re.search(rf"(?<![a-z_]){programme}(_perf)?(?![a-z])", named):
            return PROGRAMMES[programme]
    if redop in ("none", "") or algbw <= 0:
        return None
    shares = {"all_reduce": 2.0 * (ranks - 1) / ranks, "reduce_scatter": (ranks - 1) / ranks, "reduce": 1.0}
    kind = min(shares, key=lambda each: abs(shares[each] - busbw / algbw))
    # Two ranks have all-reduces and reductions with the same share, and small times are printed rounded.
    alike = sum(abs(share - shares[kind]) < 0.05 for share in shares.values())
    return kind if alike == 1 and abs(shares[kind] - busbw / algbw) < 0.1 else None


def _steps(text: str, path: Path) -> list[MeasuredStep]:
    reader = csv.DictReader(text.splitlines())
    columns = [(name or "").strip() for name in reader.fieldnames or ()]
    for needed in ("experiment", "iteration_ms"):
        if needed not in columns:
            close = nearest(needed, columns)
            hint = f"; did you mean it by {close!r}?" if close else ""
            raise ConfigError(f"{path}: column {needed!r} is missing{hint}")
    bad = [name for name in columns if name not in _STEP_COLUMNS and "." not in name]
    if bad:
        raise ConfigError(
            f"{path}: column {bad[0]!r} is neither one of {', '.join(_STEP_COLUMNS)} nor a SECTION.KEY"
        )
    found = []
    for row in reader:
        where = f"{path} line {reader.line_num}"
        cells = {str(key).strip(): (value or "").strip() for key, value in row.items() if key}
        if None in row:
            raise ConfigError(f"{where}: has more columns than the first line")
        try:
            time_us = 1e3 * float(cells["iteration_ms"])
        except ValueError:
            time_us = 0.0
        if not 0 < time_us < float("inf"):
            raise ConfigError(
                f"{where}: iteration_ms must be a positive number, got {cells['iteration_ms']!r}"
            )
        found.append(
            MeasuredStep(
                experiment=path.parent / cells["experiment"],
                workload=cells.get("workload") or None,
                topology=cells.get("topology") or None,
                set={key: cells[key] for key in columns if key not in _STEP_COLUMNS and cells[key]},
                time_us=time_us,
                where=where,
            )
        )
    if not found:
        raise ConfigError(f"{path}: has no rows")
    return found
