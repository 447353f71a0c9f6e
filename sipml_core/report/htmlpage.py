"""Results as one page: what was asked, the answer in a sentence, tables, pictures, provenance."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

import attrs
import tomli_w

from sipml_core.details import CaseDetails
from sipml_core.errors import ConfigError
from sipml_core.fields import format_bytes, format_number, format_us, frozen
from sipml_core.model import PASS_KINDS, TRAFFIC_KINDS, CaseResult, Result
from sipml_core.report.pagecode import SCRIPT, STYLE
from sipml_core.report.pagepictures import key, links_svg, timeline_svg, times_svg, traffic_svg
from sipml_core.report.repeating import row_of
from sipml_core.report.resultfiles import Inputs, write_atomically
from sipml_core.report.resultpictures import TIMES
from sipml_core.report.whyreport import Why

#: A page, at most. [bytes]
MOST_BYTES = 2_000_000
#: Pages up to so large get the pictures of another case. [bytes]
_FULL_BYTES = 1_500_000

_COLUMNS: tuple[tuple[str, str], ...] = (
    ("interconnect", "topology"), ("plan", "mp"), ("iteration", "iteration_us"), ("bound", "lower_bound_us"),
    ("compute", "compute_us"), ("exposed", "exposed_us"), ("dark", "dark_us"), ("idle", "idle_us"),
    ("sent / GPU", "network_bytes"), ("tokens/s", "tokens_per_s"), ("to goal", "time_to_goal_s"),
    ("speed-up", "speedup"),
)  # fmt: skip


@frozen(kw_only=True)
class ReportedResult:
    """A result with what was recorded of its cases."""

    result: Result
    cases: Sequence[CaseDetails]


def result_page(results: Sequence[ReportedResult]) -> str:
    """Return a page about results, whole: no other file is needed to show it.

    Raises
    ------
    ConfigError
        It would be larger than `MOST_BYTES`.
    """
    titles = ", ".join(dict.fromkeys(shown.result.title for shown in results))
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(titles)}: sipml</title><style>{STYLE}</style></head><body><main>"
    ]
    size = sum(map(len, parts))
    for shown in results:
        for section in _sections(shown, len(results) > 1):
            parts.append(section(size < _FULL_BYTES) if callable(section) else section)
            size += len(parts[-1].encode())
    data = [[_record(case) for case in shown.result.cases] for shown in results]
    told = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    parts.append(f'</main><script type="application/json" id="data">{told}</script>')
    parts.append(f"<script>{SCRIPT}</script></body></html>\n")
    page = "".join(parts)
    if len(page.encode()) > MOST_BYTES:
        raise ConfigError(
            f"the page would take {format_bytes(float(len(page.encode())))}, more than "
            f"{format_bytes(MOST_BYTES)}; report fewer results at once"
        )
    return page


def _sections(shown: ReportedResult, several: bool) -> Iterator[Any]:
    """Yield the parts of one result; what may be left out as functions of whether there is room."""
    result = shown.result
    whys = [Why.of(details, row_of(result, details)) for details in shown.cases]
    yield f"<h1>{escape(result.title)}</h1>"
    for line in answers(result, whys):
        yield f'<p class="answer">{escape(line)}</p>'
    for workload in dict.fromkeys(case.workload for case in result.cases):
        yield from _workload(result, workload)
    for why in whys:
        yield lambda room, why=why: _case(why) if room else _no_room(why)
    yield _notes(result)
    yield _asked(result)
    yield _provenance(result)
    if several:
        yield "<hr>"


def answers(result: Result, whys: Sequence[Why]) -> list[str]:
    """Return a sentence for each workload: which interconnect is fastest, what holds the slowest back."""
    lines = []
    for workload in dict.fromkeys(case.workload for case in result.cases):
        ran = [case for case in result.cases if case.workload == workload and case.iteration_us is not None]
        if not ran:
            lines.append(f"{workload}: no case ran.")
            continue
        best = min(ran, key=lambda case: case.measured_us)
        slowest = max(ran, key=lambda case: case.measured_us)
        line = f"{workload}: {best.topology} is fastest, {format_us(best.measured_us)} for an iteration"
        of_slowest = [why for why in whys if why.row == slowest]
        if len(ran) > 1 and slowest.measured_us > best.measured_us * 1.001:
            longer = slowest.measured_us / best.measured_us - 1
            line += f"; {slowest.topology} takes {longer:.0%} longer"
        lines.append(line + (_blame(of_slowest[0]) if of_slowest else "") + ".")
    return lines


def _blame(why: Why) -> str:
    """Return what the time of a case is lost on most, beside computation, and how busy that is."""
    others = [part for part in why.parts() if part.what != "compute"]
    if not others:
        return "; its critical path is computation alone"
    worst = others[0]
    share = worst.span_us / why.total_us
    line = f"; {why.row.topology} loses {share:.0%}"
    line += f" on {worst.where}" if worst.where else ""
    table = why.details.links()
    names = table["link"].tolist()
    if worst.where in names:
        busy = float(table["busy_us"][names.index(worst.where)]) / why.total_us
        line += f", busy {busy:.0%} of the run"
    return line + (f", with {worst.kind} traffic" if worst.kind else "")


def _workload(result: Result, workload: str) -> Iterator[str]:
    cases = [case for case in result.cases if case.workload == workload]
    ran = [case for case in cases if case.iteration_us is not None]
    yield f"<h2>{escape(workload)}, {cases[0].gpus} GPUs</h2>"
    yield _table(cases, result.baseline)
    if ran:
        names = [name for _, name, _, _ in TIMES]
        yield (
            f"<figure>{times_svg(ran)}{key(names, ['c0', 'c1', 'c2', 'c3'])}"
            "<figcaption>One iteration, mean over GPUs.</figcaption></figure>"
        )


def _table(cases: Sequence[CaseResult], baseline: str) -> str:
    """Return the rows as a table that sorts by any column."""
    used = [
        (head, column)
        for head, column in _COLUMNS
        if column == "topology" or any(getattr(case, column) is not None for case in cases)
    ]
    head = "".join(
        f'<th scope="col"{" class=text" if column == "topology" else ""}>'
        f'<button type="button">{escape(name)}</button></th>'
        for name, column in used
    )
    fastest = min((case.measured_us for case in cases if case.iteration_us is not None), default=None)
    rows = []
    for case in cases:
        cells = "".join(_cell(case, column, baseline) for _, column in used)
        best = ' class="best"' if case.iteration_us is not None and case.iteration_us == fastest else ""
        rows.append(f"<tr{best}>{cells}</tr>")
    return (
        '<div class="wide" tabindex="0" role="region" aria-label="results"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _cell(case: CaseResult, column: str, baseline: str) -> str:
    value = getattr(case, column)
    shown = "-"
    if column == "topology":
        shown = case.topology
    elif value is None:
        if column == "iteration_us":
            shown = case.status
        elif column == "speedup" and case.topology == baseline:
            shown = "baseline"
    elif column == "mp":
        stages = f" x {case.pp}" if (case.pp or 1) > 1 else ""
        shown = f"{case.mp}{stages} x {case.dp}"
    elif column == "network_bytes":
        value = value / case.gpus
        shown = format_bytes(value)
    elif column == "time_to_goal_s":
        shown = format_us(value * 1e6) + ("*" if case.extrapolated else "")
    elif column == "speedup":
        shown = "baseline" if case.topology == baseline else f"{value:.2f}x"
    elif column == "tokens_per_s":
        shown = format_number(value)
    else:
        shown = format_us(value)
    kind = ' class="text"' if column == "topology" else ""
    raw = "" if value is None else str(value)
    return f'<td{kind} data-value="{escape(raw)}">{escape(shown)}</td>'


def _case(why: Why) -> str:
    details = why.details
    kinds = list(dict.fromkeys(details.traffic()["kind"].tolist()))
    names = [*PASS_KINDS, *(f"{kind} traffic" for kind in kinds)]
    colours = [
        *(f"p{k}" for k in range(len(PASS_KINDS))),
        *(f"k{TRAFFIC_KINDS.index(kind)}" for kind in kinds),
    ]
    parts = "".join(
        f'<tr><td class="text" data-value="{escape(part.what)}">{escape(part.what)}</td>'
        f'<td class="text" data-value="{escape(part.where)}">{escape(part.where)}</td>'
        f'<td class="text" data-value="{escape(part.kind)}">{escape(part.kind)}</td>'
        f'<td data-value="{part.span_us!r}">{format_us(part.span_us)}</td>'
        f'<td data-value="{part.span_us / why.total_us!r}">{part.span_us / why.total_us:.1%}</td></tr>'
        for part in why.parts()[:12]
    )
    heads = "".join(
        f'<th scope="col" class="text"><button type="button">{name}</button></th>'
        for name in ("on the critical path", "where", "traffic", "time", "part")
    )
    return (
        f"<details open><summary><h3 style='display:inline'>{escape(details.name)}</h3></summary>"
        f"<p>{escape(why.sentence())}</p>"
        f'<div class="wide" tabindex="0" role="region" aria-label="critical path of {escape(details.name)}">'
        f"<table><thead><tr>{heads}</tr></thead><tbody>{parts}</tbody></table></div>"
        f"<figure>{timeline_svg(details)}{key(names, colours)}"
        "<figcaption>A few GPUs: what they compute, and below it send and receive.</figcaption></figure>"
        f"<figure>{links_svg(details)}<figcaption>The links that carry most.</figcaption></figure>"
        f"<figure>{traffic_svg(details)}<figcaption>Bytes from each GPU (row) to each.</figcaption></figure>"
        "</details>"
    )


def _no_room(why: Why) -> str:
    return (
        f"<h3>{escape(why.details.name)}</h3><p>{escape(why.sentence())}</p>"
        f'<p class="soft">Its pictures would make this page larger than {format_bytes(MOST_BYTES)}: '
        "see <code>plot</code>.</p>"
    )


def _notes(result: Result) -> str:
    lines = [f"{case.workload} on {case.topology}: {note}" for case in result.cases for note in case.notes]
    lines += [
        f"{case.workload} on {case.topology}: {case.status}: {case.reason}"
        for case in result.cases
        if not case.ran
    ]
    if any(case.extrapolated for case in result.cases):
        lines.append("* the batch lies outside the measured convergence data: extrapolated")
    if not lines:
        return ""
    return f"<h2>Notes</h2><ul>{''.join(f'<li>{escape(line)}</li>' for line in dict.fromkeys(lines))}</ul>"


def _asked(result: Result) -> str:
    asked = tomli_w.dumps(Inputs.of(result).tables(result.experiment))
    file = f"<summary>experiment.toml</summary><pre>{escape(asked)}</pre>"
    return f"<h2>What was asked</h2><details>{file}</details>"


def _provenance(result: Result) -> str:
    inputs = Inputs.of(result)
    rows = [("sipml", result.version), ("seed", str(result.seed)), *result.versions.items()]
    rows += [(inputs.names[file], f"SHA-256 {digest}") for file, digest in result.files.items()]
    rows += [(f"convergence of {name}", source) for name, source in result.sources.items() if source]
    cells = "".join(
        f'<tr><td class="text">{escape(name)}</td><td class="text">{escape(value)}</td></tr>'
        for name, value in rows
    )
    table = f'<div class="wide" tabindex="0"><table><tbody>{cells}</tbody></table></div>'
    return f"<h2>Where it comes from</h2>{table}"


def _record(case: CaseResult) -> dict[str, Any]:
    return attrs.asdict(case)


def write_page(file: Path, page: str) -> None:
    """Write a page; the file appears whole or not at all."""
    write_atomically(file, page.encode())
