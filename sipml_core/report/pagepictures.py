"""Pictures of the page, as SVG by hand: small, coloured by the page's style, with hints."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.details import CaseDetails
from sipml_core.fields import format_bytes, format_us
from sipml_core.model import PASS_KINDS, TRAFFIC_KINDS, CaseResult
from sipml_core.report.casepictures import few_gpus, link_use, time_unit, window_of
from sipml_core.report.resultpictures import TIMES

#: Of drawings; the page scales them. [px]
WIDTH = 720
#: Left of a picture, for names. [px]
_LEFT = 110
#: Boxes of a row closer than this are one. [px]
_MERGE = 0.7
#: GPUs of a traffic matrix that are drawn one by one; more are taken together.
_CELLS = 48
_LINKS = 5


def key(names: Sequence[str], colours: Sequence[str]) -> str:
    """Return what colours stand for, as a list."""
    items = "".join(
        f'<li><span style="background:var(--{colour})"></span>{escape(name)}</li>'
        for name, colour in zip(names, colours, strict=True)
    )
    return f'<ul class="key">{items}</ul>'


def _svg(height: float, label: str, content: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" role="img" aria-label="{escape(label)}">'
        f"{content}</svg>"
    )


def _text(x: float, y: float, words: str, anchor: str = "start", kind: str = "") -> str:
    told = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{told}>{escape(words)}</text>'


def times_svg(cases: Sequence[CaseResult]) -> str:
    """Return stacked bars of an iteration of each case of one workload; a part is hovered over or focused."""
    most_us = max(case.measured_us for case in cases)
    worth, unit = time_unit(most_us)
    scale = (WIDTH - _LEFT - 70) / most_us
    parts = []
    for place, case in enumerate(cases):
        y, x = 8 + 30 * place, float(_LEFT)
        parts.append(_text(_LEFT - 6, y + 15, _short(case.topology, 16), "end"))
        for number, (column, name, _, _) in enumerate(TIMES):
            span_us = getattr(case, column) or 0.0
            if span_us <= 0:
                continue
            told = f"{case.topology}: {name} {format_us(span_us)}, {span_us / case.measured_us:.1%}"
            parts.append(
                f'<rect x="{x:.1f}" y="{y}" width="{max(0.5, span_us * scale):.1f}" height="22" '
                f'fill="var(--c{number})" tabindex="0" role="img" data-hint="{escape(told)}" '
                f'aria-label="{escape(told)}"><title>{escape(told)}</title></rect>'
            )
            x += span_us * scale
        parts.append(_text(x + 6, y + 15, format_us(case.measured_us)))
    height = 8 + 30 * len(cases)
    axis, below = _axis(0.0, most_us, worth, unit, scale, height)
    return _svg(height + below, "time of one iteration, by what GPUs do", "".join(parts) + axis)


def _axis(
    since_us: float, until_us: float, worth: float, unit: str, scale: float, y: float
) -> tuple[str, float]:
    """Return an axis of time below a picture, and its height. `scale` in px per us."""
    step = _step((until_us - since_us) / worth / 5)
    first = np.ceil(since_us / worth / step) * step
    ticks = np.arange(first, until_us / worth + step * 1e-6, step)
    end = _LEFT + (until_us - since_us) * scale
    parts = [f'<path class="axis" d="M{_LEFT} {y:g}H{end:.1f}"/>']
    for tick in ticks.tolist():
        x = _LEFT + (tick * worth - since_us) * scale
        parts.append(
            f'<path class="axis" d="M{x:.1f} {y:g}v4"/>{_text(x, y + 16, f"{tick:g}", "middle", "soft")}'
        )
    parts.append(_text(end, y + 30, f"time [{unit}]", "end", "soft"))
    return "".join(parts), 36.0


def _step(rough: float) -> float:
    """Return a round number near a rough one.

    >>> [_step(rough) for rough in (0.013, 3.4, 80)]
    [0.02, 5.0, 100.0]
    """
    power = 10.0 ** np.floor(np.log10(rough)) if rough > 0 else 1.0
    return float(next(power * k for k in (1, 2, 5, 10) if power * k >= rough * 0.999))


def timeline_svg(details: CaseDetails) -> str:
    """Return what a few GPUs compute, send and receive: one path for each row and kind."""
    record, gpus = details.record, few_gpus(details)
    since_us, until_us = window_of(details)
    scale = (WIDTH - _LEFT - 10) / max(until_us - since_us, 1e-9)
    flows = attrs.evolve(
        details, selection=attrs.evolve(details.selection, gpus=tuple(gpus.tolist()))
    ).flows()
    parts = []
    for place, gpu in enumerate(gpus.tolist()):
        y = 6 + 40 * place
        parts.append(_text(_LEFT - 6, y + 15, f"GPU {gpu}", "end"))
        mine = np.flatnonzero(record.tasks.gpu == details.original[gpu])
        for kind, name in enumerate(PASS_KINDS):
            of = mine[(record.pass_kind[mine] == kind)]
            spans = record.timeline.start_us[of], record.timeline.end_us[of]
            parts.append(_row(spans, (since_us, scale), y, 18, f"p{kind}", f"GPU {gpu}: {name}"))
        other = mine[record.pass_kind[mine] < 0]
        spans = record.timeline.start_us[other], record.timeline.end_us[other]
        parts.append(_row(spans, (since_us, scale), y, 18, "c2", f"GPU {gpu}: computes"))
        for end, low, verb in (("src", 20, "sends"), ("dst", 28, "receives")):
            for kind, name in enumerate(TRAFFIC_KINDS):
                chosen = (flows[end] == gpu) & (flows["kind"] == name)
                spans = flows["moved_us"][chosen], flows["left_us"][chosen]
                hint = f"GPU {gpu} {verb} {name} traffic"
                parts.append(_row(spans, (since_us, scale), y + low, 6, f"k{kind}", hint))
    height = 8 + 40 * len(gpus)
    axis, below = _axis(since_us, until_us, *time_unit(until_us), scale, height)
    return _svg(height + below, f"what GPUs of {details.name} do over time", "".join(parts) + axis)


def _row(
    spans: tuple[NDArray[np.float64], NDArray[np.float64]],
    place: tuple[float, float],
    y: float,
    height: float,
    colour: str,
    hint: str,
) -> str:
    """Return boxes of one colour in a row as one path; those that nearly touch are one box."""
    since_us, scale = place
    begins = np.clip((spans[0] - since_us) * scale, 0, WIDTH - _LEFT - 10)
    ends = np.clip((spans[1] - since_us) * scale, 0, WIDTH - _LEFT - 10)
    seen = ends > begins
    order = np.argsort(begins[seen], kind="stable")
    begins, ends = begins[seen][order], np.maximum.accumulate(ends[seen][order]) if seen.any() else ends[:0]
    if not len(begins):
        return ""
    opens = np.append(True, begins[1:] > ends[:-1] + _MERGE)
    low = begins[opens]
    high = ends[np.append(np.flatnonzero(opens)[1:] - 1, len(ends) - 1)]
    path = "".join(
        f"M{_LEFT + a:.1f} {y:g}h{max(0.4, b - a):.1f}v{height:g}h-{max(0.4, b - a):.1f}z"
        for a, b in zip(low.tolist(), high.tolist(), strict=True)
    )
    return f'<path d="{path}" fill="var(--{colour})" data-hint="{escape(hint)}"/>'


def links_svg(details: CaseDetails) -> str:
    """Return how full the busiest links are over time, their names and the mean in the run beside them."""
    shown = link_use(details, _LINKS)
    samples = details.record.timeline.samples
    assert samples is not None
    end_us = details.record.timeline.total_us
    scale = (WIDTH - _LEFT - 10) / end_us
    edges = (_LEFT + samples.at_us * scale).tolist()
    parts = []
    for place, (name, values, mean) in enumerate(shown):
        base = 40 * (place + 1)
        steps = "".join(
            f"V{base - 32 * min(1.0, value):.1f}H{edge:.1f}"
            for value, edge in zip(values.tolist(), edges[1:], strict=True)
        )
        hint = f"{name}: {mean:.1%} of its capacity in the mean, {values.max(initial=0):.0%} at most"
        parts.append(
            f'<path d="M{_LEFT} {base}{steps}V{base}z" fill="var(--c0)" tabindex="0" role="img" '
            f'data-hint="{escape(hint)}" aria-label="{escape(hint)}"><title>{escape(hint)}</title></path>'
            f'<path class="axis" d="M{_LEFT} {base}H{WIDTH - 10}"/>'
            f"{_text(_LEFT - 6, base - 16, _short(name, 16), 'end')}"
            f"{_text(_LEFT - 6, base - 3, f'{mean:.0%} of capacity', 'end', 'soft')}"
        )
    height = 40 * len(shown) + 4
    axis, below = _axis(0.0, end_us, *time_unit(end_us), scale, height)
    return _svg(height + below, f"use of the busiest links of {details.name}", "".join(parts) + axis)


def traffic_svg(details: CaseDetails) -> str:
    """Return the traffic matrix: a cell for each pair, or for groups of GPUs where there are many."""
    table, gpus = details.traffic(), details.record.gpus
    group = -(-gpus // _CELLS)
    cells = -(-gpus // group)
    dense = np.zeros((cells, cells))
    np.add.at(dense, (table["src"] // group, table["dst"] // group), table["bytes"])
    size = min(24.0, 420 / cells)
    most, left, top, side = max(dense.max(), 1.0), 70.0, 22.0, size * cells
    parts = [f'<rect class="axis" x="{left:g}" y="{top:g}" width="{side:.1f}" height="{side:.1f}"/>']
    for src, dst in np.argwhere(dense > 0).tolist():
        who = [
            f"GPU {at}" if group == 1 else f"GPUs {at * group}-{min(gpus, at * group + group) - 1}"
            for at in (src, dst)
        ]
        told = f"{who[0]} to {who[1]}: {format_bytes(float(dense[src, dst]))}"
        x, y, shade = left + size * dst, top + size * src, 0.15 + 0.85 * (dense[src, dst] / most) ** 0.5
        parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{size:.1f}" height="{size:.1f}" fill="var(--c0)" '
            f'fill-opacity="{shade:.2f}" data-hint="{escape(told)}"><title>{escape(told)}</title></rect>'
        )
    for at in range(0, cells, max(1, cells // 8)):
        parts.append(_text(left - 5, top + size * at + size * 0.7, str(at * group), "end", "soft"))
        parts.append(_text(left + size * (at + 0.5), top - 5, str(at * group), "middle", "soft"))
    parts.append(_text(0, top + 12, "from GPU"))
    parts.append(_text(left + size * cells + 8, top - 5, "to GPU"))
    words = f"darkest: {format_bytes(float(most))} in the run"
    parts.append(_text(left + size * cells + 8, top + 16, words, "start", "soft"))
    return _svg(top + size * cells + 8, f"bytes between GPUs of {details.name}", "".join(parts))


def _short(words: str, most: int) -> str:
    """Return words of at most so many letters.

    >>> _short("elect-cluster-200", 10)
    'elect-clu…'
    """
    return words if len(words) <= most else words[: most - 1] + "…"
