"""Why a case takes as long as it does: its critical path, and what would shorten it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from sipml_core.cases import Gain
from sipml_core.details import CaseDetails, PathStep, critical_path
from sipml_core.fields import format_us, frozen
from sipml_core.model import CaseResult
from sipml_core.report.fitting import fitted

#: Lines of a table.
SHOWN = 10
_WORDS = {
    "compute": "compute",
    "transfer": "bytes move",
    "dark": "circuit dark",
    "latency": "latency",
    "idle": "nothing known",
}


@frozen(kw_only=True)
class PathPart:
    """All steps of a critical path that are of one kind and at one place."""

    what: str
    where: str
    kind: str
    steps: int
    span_us: float
    #: Link by its fabric id; None: it is no link.
    link: int | None


@frozen(kw_only=True)
class Why:
    """What a case's time was made of."""

    details: CaseDetails
    row: CaseResult
    steps: tuple[PathStep, ...]

    @classmethod
    def of(cls, details: CaseDetails, row: CaseResult) -> Why:
        """Return the critical path of a case."""
        return cls(details=details, row=row, steps=tuple(critical_path(details.record)))

    @property
    def total_us(self) -> float:
        """Return the time of the whole run. [us]"""
        return self.details.record.timeline.total_us

    def parts(self) -> list[PathPart]:
        """Return the path by kind of step and place, the longest first."""
        sums: dict[tuple[str, str, str, int | None], list[float]] = {}
        for step in self.steps:
            where = step.where if step.what != "compute" else "GPUs"
            sums.setdefault((step.what, where, step.kind, step.link), []).append(step.span_us)
        found = [
            PathPart(what=what, where=where, kind=kind, steps=len(spans), span_us=sum(spans), link=link)
            for (what, where, kind, link), spans in sums.items()
        ]
        return sorted(found, key=lambda part: (-part.span_us, part.what, part.where))

    def held_links(self) -> list[tuple[str, int]]:
        """Return the links that hold the path back for longest: name, and number in the network."""
        record = self.details.record
        sums: dict[int, float] = {}
        for part in self.parts():
            if part.link is not None and part.what in ("transfer", "dark"):
                sums[part.link] = sums.get(part.link, 0.0) + part.span_us
        order = sorted(sums, key=lambda link: -sums[link])
        number = {int(link): place for place, link in enumerate(record.network.link_id.tolist())}
        return [(record.link_name(link), number[link]) for link in order]

    def sentence(self) -> str:
        """Return the answer in one sentence, with the largest part of what is no computation."""
        parts = self.parts()
        compute_us = sum(part.span_us for part in parts if part.what == "compute")
        others = [part for part in parts if part.what != "compute"]
        share = compute_us / self.total_us
        told = f"{self.row.topology} takes {format_us(self.row.measured_us)} for an iteration of "
        told += f"{self.row.workload}; {share:.0%} of its critical path is computation"
        if not others:
            return f"{told}, and nothing else."
        worst = others[0]
        where = f" on {worst.where}" if worst.where else ""
        kind = f" of {worst.kind} traffic" if worst.kind else ""
        verb = {"transfer": "moves bytes", "dark": "waits for circuits", "latency": "waits for latency"}
        what = verb.get(worst.what, "waits")
        return f"{told}, {worst.span_us / self.total_us:.0%} {what}{kind}{where}, the most of the rest."


def why_tables(why: Why, gains: Sequence[Gain], width: int = 160, steps: int = 0) -> list[Table]:
    """Return the critical path by place, what would shorten it, and if asked for its longest steps."""
    parts = why.parts()
    columns = ("on the path", "where", "traffic", "steps", "time", "part")
    tables = [
        fitted(
            f"{why.details.name}: the critical path of {len(why.steps)} steps, {format_us(why.total_us)}",
            columns,
            [
                {
                    "on the path": _WORDS[part.what], "where": part.where, "traffic": part.kind,
                    "steps": str(part.steps), "time": format_us(part.span_us),
                    "part": f"{part.span_us / why.total_us:.1%}",
                }
                for part in parts[:SHOWN]
            ],
            width=width, left=columns[:3],
            caption=f"{len(parts) - SHOWN} more places" if len(parts) > SHOWN else "",
        )
    ]  # fmt: skip
    if steps:
        tables.append(_steps_table(why, steps, width))
    tables.append(
        fitted(
            f"{why.details.name}: what would shorten it, each simulated",
            ("change", "iteration", "saves"),
            [
                {"change": gain.name, "iteration": format_us(gain.iteration_us), "saves": f"{gain.saved:.1%}"}
                for gain in gains
            ],
            width=width, left=("change",),
        )
    )  # fmt: skip
    return tables


def _steps_table(why: Why, count: int, width: int) -> Table:
    longest = sorted(why.steps, key=lambda step: -step.span_us)[:count]
    order = sorted(longest, key=lambda step: step.since_us)
    columns = ("from", "time", "on the path", "what", "where")
    return fitted(
        f"{why.details.name}: its {len(order)} longest steps, in order",
        columns,
        [
            {
                "from": format_us(step.since_us), "time": format_us(step.span_us),
                "on the path": _WORDS[step.what], "what": step.name, "where": step.where,
            }
            for step in order
        ],
        width=width, left=columns[2:], drop=("where",),
    )  # fmt: skip
