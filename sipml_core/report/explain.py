"""How the ops of a workload are cut, why, and what came second."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from rich.table import Table

from sipml_core.cases import Case, Reuse, balanced_graph, case_layouts, model_parts, op_graph, op_times_us
from sipml_core.errors import ConfigError, unknown
from sipml_core.experiment import Experiment, Interconnect, Job
from sipml_core.fields import format_gbps, format_us
from sipml_core.model import CaseResult, Prices
from sipml_core.partition import Layout, explain
from sipml_core.report.fitting import fitted
from sipml_core.report.planreport import StageContent, plan_tables, stage_contents
from sipml_core.searching import SearchResult

_CHOSEN = ("ops", "like it", "cut along", "as", "parts")
_COSTS = ("compute", "traffic", "sync", "next best", "would add")
_DONE = "each GPU does"
#: Left out one by one, in this order, where the terminal is too narrow.
_DROPPED = ("sync", "traffic", "compute", "like it", "as")


def strategy_tables(experiment: Experiment, width: int = 160) -> Iterable[Table]:
    """Yield the layouts of every workload under its [plan] on each interconnect, each once; stages first.

    A layout that is chosen by cost has one for each price of the network by which ops may be cut; a run keeps
    the fastest.

    Raises
    ------
    ConfigError
        A workload has no degrees.
    """
    for job in experiment.jobs:
        if job.searched:
            raise ConfigError(
                f"{job.label} has no mp or dp to explain; name one with --set plan.mp=8, "
                "or let `search --explain` choose"
            )
        shown: set[Layout] = set()
        for number, interconnect in enumerate(experiment.interconnects):
            plan, reuse = job.plan(interconnect.cluster.gpus), Reuse()
            case = Case.of(experiment, job, interconnect, plan)
            layouts = case_layouts(case, reuse)
            if number == 0 and (plan.pp > 1 or plan.micro_batches > 1):
                yield from plan_tables(job.label, plan, _contents(case, next(iter(layouts))), width)
            for layout, prices in layouts.items():
                if layout not in shown:
                    shown.add(layout)
                    yield layout_table(case, layout, prices, width)


def _contents(case: Case, layout: Layout) -> list[StageContent]:
    """Return what each stage of a plan holds; none where there is one stage."""
    job, plan = case.job, case.plan
    if plan.pp == 1:
        return []
    copies = job.key_copies(plan)
    graph = op_graph(job.workload, plan.micro_samples, case.precision, plan.cp, plan.ep, copies)
    balanced = balanced_graph(graph, layout, case.gpu, case.interconnect.cluster, plan)
    return stage_contents(graph, model_parts(balanced, plan), op_times_us(balanced), plan.pp)


def winner_tables(experiment: Experiment, result: SearchResult, width: int = 160) -> Iterable[Table]:
    """The layouts of the winners of a search."""
    for case in result.best:
        job = next(job for job in experiment.jobs if job.label == case.workload)
        plan = job.plan(case.gpus, case.mp, case.global_batch)
        interconnect = _interconnect(experiment, case.topology)
        found = Case.of(experiment, _with_layout(job, result, case), interconnect, plan)
        for layout, prices in case_layouts(found, Reuse()).items():
            yield layout_table(found, layout, prices, width)


def _with_layout(job: Job, result: SearchResult, case: CaseResult) -> Job:
    row = next(row for row in result.of(case.workload, case.topology) if row.best)
    return job.with_layout(row.layout)


def _interconnect(experiment: Experiment, topology: str) -> Interconnect:
    """Return the interconnect of that label; `ConfigError` if there is none."""
    by_label = {interconnect.label: interconnect for interconnect in experiment.interconnects}
    if topology not in by_label:
        raise ConfigError(unknown("topology", topology, by_label))
    return by_label[topology]


def layout_table(case: Case, layout: Layout, prices: Prices, width: int = 160) -> Table:
    """Return the table of a layout.

    Ops that differ only by a number in their name, and are cut alike, share a line; times are sums.

    `prices` are those by which the layout was chosen, if it was.
    """
    job, plan = case.job, case.plan
    title = (
        f"{job.label} on {case.interconnect.label}: mp {plan.mp} x dp {plan.dp}, "
        f"global batch {plan.global_batch}, layout {layout.name!r}"
    )
    if layout.choices and plan.mp > 1:
        group, replica = format_gbps(prices.group_gbps), format_gbps(prices.replica_gbps)
        title += f", cut as if a GPU had {group} inside its group and {replica} for gradients"
    fixed = (*_CHOSEN[:3], _DONE) if layout.duplicated else _CHOSEN[:3]
    headings = (*_CHOSEN, *_COSTS) if layout.choices else fixed
    rows = [dict(zip(headings, cells, strict=True)) for cells in _lines(layout)]
    return fitted(title, headings, rows, width=width, drop=_DROPPED, left=("ops", "next best"))


def _lines(layout: Layout) -> Iterable[list[str]]:
    alike: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in explain(layout):
        name = re.sub(r"\d+", "*", row["op"])
        alike[name, row["dim"], row.get("parts"), row.get("runner_up"), row.get("duplicated")].append(row)
    for (name, dim, parts, runner_up, duplicated), rows in alike.items():
        first = rows[0]["op"] if len(rows) == 1 else name
        cells = [first, str(len(rows)), dim]
        if parts is not None:
            costs = [
                format_us(sum(row[key] for row in rows)) for key in ("compute_us", "traffic_us", "sync_us")
            ]
            extra = [row["runner_up_extra_us"] for row in rows if row["runner_up_extra_us"] is not None]
            cells += [
                rows[0]["split"],
                str(parts),
                *costs,
                runner_up,
                format_us(sum(extra)) if extra else "-",
            ]
        elif layout.duplicated:
            cells.append("all of it" if duplicated else "its part")
        yield cells
