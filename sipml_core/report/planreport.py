"""A plan in a table: which GPUs a stage is on, whom they talk to, and the passes it makes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from rich.table import Table

from sipml_core.lowering import Pass, most_in_flight, schedule
from sipml_core.model import Plan

#: Passes of a stage that are printed; the middle of longer lists is left out.
_SHOWN = 24
_COLUMNS = ("stage", "GPUs of replica 0", "stages beside it", "next replica", "micro-batches held", "passes")


def plan_table(label: str, plan: Plan) -> Table:
    """Return one line for each stage of the first replica.

    GPUs are places in the order of the network, from the fastest outwards.
    """
    shown = [name for name in ("mp", "cp", "pp", "dp") if name != "cp" or plan.cp > 1]
    degrees = " x ".join(f"{name} {getattr(plan, name)}" for name in shown)
    degrees += f" (ep {plan.ep})" if plan.ep > 1 else ""
    title = (
        f"{label}: {degrees}, {plan.micro_batches} micro-batches of "
        f"{plan.micro_samples}, schedule {plan.schedule}, zero {plan.zero}"
    )
    table = Table(title=title, title_justify="left")
    for column in _COLUMNS:
        table.add_column(column, justify="left")
    place = plan.positions.reshape(plan.replicas, plan.pp, plan.mp)
    lists = schedule(plan.schedule, plan.pp, plan.micro_batches, plan.chunks)
    for stage, passes in enumerate(lists):
        beside = [s for s in (stage - 1, stage + 1) if 0 <= s < plan.pp]
        if plan.chunks > 1:
            beside = sorted({(stage - 1) % plan.pp, (stage + 1) % plan.pp})
        table.add_row(
            str(stage),
            span(place[0, stage].tolist()),
            "; ".join(span(place[0, s].tolist()) for s in beside) or "-",
            span(place[1, stage].tolist()) if plan.replicas > 1 else "-",
            str(most_in_flight(passes)),
            shortened(passes, chunked=plan.chunks > 1),
        )
    return table


def span(numbers: Sequence[int]) -> str:
    """Return numbers in words, a regular row by its ends.

    >>> span([4, 5, 6, 7]), span([0, 8, 16]), span([3]), span([1, 2])
    ('4..7', '0, 8 .. 16', '3', '1, 2')
    """
    if len(numbers) < 3:
        return ", ".join(map(str, numbers))
    step = numbers[1] - numbers[0]
    if any(b - a != step for a, b in itertools.pairwise(numbers)):
        return ", ".join(map(str, numbers))
    return f"{numbers[0]}..{numbers[-1]}" if step == 1 else f"{numbers[0]}, {numbers[1]} .. {numbers[-1]}"


def shortened(passes: Sequence[Pass], *, chunked: bool) -> str:
    """Return a list of passes in words: F forward, B backward, W gradients of parameters; micro-batch, chunk.

    >>> shortened(schedule("1f1b", 2, 3)[0], chunked=False)
    'F0 F1 B0 F2 B1 B2'
    """
    words = [str(each) if chunked else str(each).partition(".")[0] for each in passes]
    if len(words) > _SHOWN:
        words = [*words[: _SHOWN // 2], "...", *words[-_SHOWN // 2 :]]
    return " ".join(words)
