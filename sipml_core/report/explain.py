"""How the ops of a workload are cut, why, and what came second."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from rich.table import Table

from sipml_core.cases import balanced_graph, model_parts, op_graph, op_layout, op_times_us
from sipml_core.errors import ConfigError, unknown
from sipml_core.experiment import Experiment, Job
from sipml_core.fields import format_us
from sipml_core.model import CaseResult, Cluster, Plan, Prices
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
    """The layout of every workload under its [plan], once for each bandwidth; first its stages, if any.

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
        shown = set()
        for interconnect in experiment.interconnects:
            if interconnect.cluster not in shown:
                shown.add(interconnect.cluster)
                plan = job.plan(interconnect.cluster.gpus)
                if len(shown) == 1 and (plan.pp > 1 or plan.micro_batches > 1):
                    contents = _contents(experiment, job, plan, interconnect.cluster)
                    yield from plan_tables(job.label, plan, contents, width)
                yield layout_table(experiment, job, interconnect.label, plan, width)


def _contents(experiment: Experiment, job: Job, plan: Plan, cluster: Cluster) -> list[StageContent]:
    """Return what each stage of a plan holds; none where there is one stage."""
    if plan.pp == 1:
        return []
    copies = job.key_copies(plan)
    graph = op_graph(job.workload, plan.micro_samples, experiment.precision, plan.cp, plan.ep, copies)
    prices = Prices.flat(cluster.bandwidth_gbps)
    layout = op_layout(graph, job.table.layout, experiment.gpu, cluster, plan, prices)
    balanced = balanced_graph(graph, layout, experiment.gpu, cluster, plan)
    return stage_contents(graph, model_parts(balanced, plan), op_times_us(balanced), plan.pp)


def winner_tables(experiment: Experiment, result: SearchResult, width: int = 160) -> Iterable[Table]:
    """The layouts of the winners of a search."""
    for case in result.best:
        job = next(job for job in experiment.jobs if job.label == case.workload)
        plan = job.plan(case.gpus, case.mp, case.global_batch)
        yield layout_table(experiment, _with_layout(job, result, case), case.topology, plan, width)


def _with_layout(job: Job, result: SearchResult, case: CaseResult) -> Job:
    row = next(row for row in result.of(case.workload, case.topology) if row.best)
    return job.with_layout(row.layout)


def layout_table(experiment: Experiment, job: Job, topology: str, plan: Plan, width: int = 160) -> Table:
    """Ops that differ only by a number in their name, and are cut alike, share a line; times are sums.

    Raises `ConfigError` if there is no such interconnect.
    """
    by_label = {interconnect.label: interconnect for interconnect in experiment.interconnects}
    if topology not in by_label:
        raise ConfigError(unknown("topology", topology, by_label))
    graph = op_graph(
        job.workload, plan.micro_samples, experiment.precision, plan.cp, plan.ep, job.key_copies(plan)
    )
    cluster = by_label[topology].cluster
    prices = Prices.flat(cluster.bandwidth_gbps)
    layout = op_layout(graph, job.table.layout, experiment.gpu, cluster, plan, prices)
    title = (
        f"{job.label} on {topology}: mp {plan.mp} x dp {plan.dp}, "
        f"global batch {plan.global_batch}, layout {layout.name!r}"
    )
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
