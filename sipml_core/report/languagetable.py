"""What a run means for a language model, as a table: utilisation, waiting by kind, memory by kind, cost."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from sipml_core.fields import format_count, format_number, format_us
from sipml_core.model import TRAFFIC_KINDS, CaseResult
from sipml_core.report.fitting import fitted

_MEMORY = ("parameters", "gradients", "optimizer", "activations")
_COST = ("days", "GPU-hours")
_SPEED = ("tokens/s/GPU", "TFLOP/s/GPU", "MFU", "MFU needed", "HFU")
_HELD = "parameters, gradients,\noptimizer, activations"
#: Left out one by one, in this order, where the terminal is too narrow.
_DROPPED = ("MFU needed", "days", "HFU", "TFLOP/s/GPU", _HELD, "GPU-hours", *TRAFFIC_KINDS)


def language_table(rows: Sequence[CaseResult], width: int) -> Table | None:
    """Return the table of one workload's rows; None where it is no language model, or nothing ran.

    Kinds of traffic that no row waits for are left out.
    """
    ran = [row for row in rows if row.tokens_per_s_gpu is not None]
    if not ran:
        return None
    kinds = [kind for kind in TRAFFIC_KINDS if any(_exposed_us(row, kind) for row in ran)]
    headings = ("interconnect", *_SPEED, *kinds, _HELD, *_COST)
    table = fitted(
        f"{rows[0].workload}: a GPU's share, exposed communication by kind, memory of the fullest GPU, and "
        f"cost of {_goal(ran[0])}",
        headings,
        [dict(zip(headings, _cells(row, kinds), strict=True)) for row in ran],
        width=width,
        drop=_DROPPED,
        left=("interconnect",),
    )
    shown = {str(column.header) for column in table.columns}
    lines = [*_bubbles(ran), *_left_out([heading for heading in headings if heading not in shown])]
    if lines:
        table.caption = Text("\n".join(lines))
    return table


def _bubbles(ran: Sequence[CaseResult]) -> list[str]:
    """Say how long GPUs are idle beside the bubble of their pipeline, if they have one."""
    idle = [
        f"{row.topology} {_percent(row.idle_us / row.iteration_us)}"
        for row in ran
        if row.bubble and row.iteration_us and row.idle_us is not None
    ]
    bubbles = sorted({_percent(row.bubble) for row in ran if row.bubble})
    ideal = f"the bubble of {'the pipeline' if len(bubbles) == 1 else 'pipelines'}, (p - 1) / (m + p - 1)"
    return [f"idle part of an iteration: {', '.join(idle)}; {ideal}: {', '.join(bubbles)}"] if idle else []


def _left_out(headings: Sequence[str]) -> list[str]:
    """Say which columns a narrow terminal lacks."""
    if not headings:
        return []
    names = ", ".join("memory by kind" if heading == _HELD else heading for heading in headings)
    columns = "1 column" if len(headings) == 1 else f"{len(headings)} columns"
    return [f"{columns} left out ({names}): in summary.csv, and here in a wider terminal"]


def _goal(row: CaseResult) -> str:
    tokens = (row.training_days or 0.0) * 86_400 * (row.tokens_per_s or 0.0)
    return f"{format_count(float(f'{tokens:.3g}'))} tokens"


def _exposed_us(row: CaseResult, kind: str) -> float | None:
    value: float | None = getattr(row, f"{kind}_exposed_us")
    return value


def _cells(row: CaseResult, kinds: Sequence[str]) -> list[str]:
    exposed = [_exposed_us(row, kind) for kind in kinds]
    held = [(getattr(row, f"memory_{kind}_bytes") or 0.0) * 1e-9 for kind in _MEMORY]
    return [
        row.topology,
        _number(row.tokens_per_s_gpu),
        _number(row.model_tflops_gpu),
        *map(_percent, (row.mfu, row.mfu_needed, row.hfu)),
        *("-" if us is None else format_us(us) for us in exposed),
        ", ".join(f"{gigabytes:.3g}" for gigabytes in held) + " GB",
        _number(row.training_days),
        _number(row.training_gpu_hours),
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else format_number(value)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
