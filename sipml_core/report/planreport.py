"""A plan in tables: what a stage holds, which GPUs it is on, whom they talk to, and the passes it makes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from sipml_core.fields import format_us, frozen
from sipml_core.lowering import Pass, most_in_flight, schedule
from sipml_core.model import OpGraph, Phase, Plan
from sipml_core.partition import layers_of
from sipml_core.report.fitting import fitted

#: Passes of a stage that are printed; the middle of longer lists is left out.
_SHOWN = 24
_COLUMNS = ("stage", "holds", "takes", "GPUs", "beside", "block", "next replica", "held")
_CAPTION = (
    "GPUs of the first replica, of the stages beside each and of the next replica: places in the order of "
    "the network, from the fastest outwards. Held: micro-batches at once. Takes: forward and backward of "
    "one, without what runs again."
)
_OF_BLOCK = " Block: those that share experts or sequences with the first of its GPUs."
_PASSES = "passes of each stage: F forward, B backward, W gradients of parameters late; micro-batch"


@frozen(kw_only=True)
class StageContent:
    """What a stage holds of the model, a text for each chunk, and how long a micro-batch takes there. [us]"""

    holds: tuple[str, ...]
    time_us: float


def stage_contents(
    graph: OpGraph, part: NDArray[np.int32], time_us: NDArray[np.float64], stages: int
) -> list[StageContent]:
    """Return what each stage holds, of ops in parts [ops] that take so long [ops] [us]; part c is on stage
    c mod `stages`.

    The optimizer's ops are not counted.

    Examples
    --------
    >>> from sipml_core.testing.worked import two_layers
    >>> for content in stage_contents(two_layers(), np.array([0, 1, 1, 0, 0, 1]), np.ones(6), stages=2):
    ...     print(content.holds, content.time_us)
    ('f',) 2.0
    ('g',) 2.0
    """
    forward = np.array([op.phase is Phase.FORWARD for op in graph.ops])
    counts = np.array([op.phase is not Phase.OPTIMIZER for op in graph.ops])
    names = [op.name for op in graph.ops if op.phase is Phase.FORWARD]
    layers, of_part = layers_of(names), part[forward]
    took_us = np.bincount(part[counts] % stages, time_us[counts], minlength=stages)
    holds = []
    for number in range(int(part.max()) + 1):
        first, *_ = own = np.flatnonzero(of_part == number).tolist()
        last = own[-1]
        begin = next((layer.name for layer in layers if layer.first == first), names[first])
        end = next((layer.name for layer in layers if layer.stop == last + 1), names[last])
        whole = sum(first <= layer.first and layer.stop <= last + 1 for layer in layers)
        of_layers = f" ({whole} layer{'s' * (whole != 1)})" if whole else ""
        holds.append((f"{begin} to {end}" if begin != end else begin) + of_layers)
    return [StageContent(holds=tuple(holds[s::stages]), time_us=float(took_us[s])) for s in range(stages)]


def plan_tables(
    label: str, plan: Plan, contents: Sequence[StageContent], width: int = 160
) -> Iterator[Table]:
    """Yield the stages of the first replica with their GPUs and neighbours, then the passes of each.

    Parameters
    ----------
    contents
        Of each stage; none: these columns are left out.
    """
    shown = [name for name in ("mp", "cp", "pp", "dp") if name != "cp" or plan.cp > 1]
    degrees = " x ".join(f"{name} {getattr(plan, name)}" for name in shown)
    degrees += f" (ep {plan.ep})" if plan.ep > 1 else ""
    title = (
        f"{label}: {degrees}, {plan.micro_batches} micro-batches of "
        f"{plan.micro_samples}, schedule {plan.schedule}, zero {plan.zero}"
    )
    place = plan.positions.reshape(plan.replicas, plan.pp, plan.mp)
    lists = schedule(plan.schedule, plan.pp, plan.micro_batches, plan.chunks)
    rows = []
    for stage, passes in enumerate(lists):
        beside = [s for s in (stage - 1, stage + 1) if 0 <= s < plan.pp]
        if plan.chunks > 1:
            beside = sorted({(stage - 1) % plan.pp, (stage + 1) % plan.pp})
        rows.append(
            {
                "stage": str(stage),
                "holds": "; ".join(contents[stage].holds) if contents else "",
                "takes": format_us(contents[stage].time_us) if contents else "",
                "GPUs": span(place[0, stage].tolist()),
                "beside": "; ".join(span(place[0, s].tolist()) for s in beside) or "-",
                "block": span(place[: plan.block, stage, 0].tolist()),
                "next replica": span(place[1, stage].tolist()) if plan.replicas > 1 else "-",
                "held": str(most_in_flight(passes)),
            }
        )
    left_out = [] if contents else ["holds", "takes"]
    left_out += [] if plan.block > 1 else ["block"]
    headings = [name for name in _COLUMNS if name not in left_out]
    caption = _CAPTION + _OF_BLOCK * (plan.block > 1)
    yield fitted(title, headings, rows, width=width, left=headings, caption=caption)
    listed = [
        {"stage": str(stage), "passes": shortened(passes, chunked=plan.chunks > 1)}
        for stage, passes in enumerate(lists)
    ]
    in_chunks = " and chunk" if plan.chunks > 1 else ""
    yield fitted(f"{_PASSES}{in_chunks}", ("stage", "passes"), listed, width=width, left=("stage", "passes"))


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
