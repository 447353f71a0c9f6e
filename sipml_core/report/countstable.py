"""What a workload is made of: parameters, FLOPs and kept bytes of its ops."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

import attrs
from rich.table import Table

from sipml_core.cases import op_graph
from sipml_core.experiment import Experiment
from sipml_core.fields import format_bytes
from sipml_core.model import OpGraph, Phase, Role
from sipml_core.report.fitting import fitted

_HEADINGS = ("ops", "like it", "kind", "parameters", "forward FLOPs", "makes")


@attrs.define
class _Counts:
    """Sums over forward ops that differ only by a number in their name."""

    ops: int = 0
    parameters: int = 0
    flops: float = 0.0
    made_bytes: int = 0


def counts_tables(experiment: Experiment, width: int = 160) -> Iterable[Table]:
    """Yield what each workload is made of, for one sample."""
    for job in experiment.jobs:
        graph = op_graph(job.workload, 1, experiment.precision)
        yield counts_table(job.label, graph, width)


def counts_table(label: str, graph: OpGraph, width: int = 160) -> Table:
    """Return a line for ops that differ by a number, and the sum; parameters count where first used."""
    rows: dict[tuple[str, str], _Counts] = defaultdict(_Counts)
    first: dict[tuple[str, str], str] = {}
    total, known = _Counts(), set[str]()
    for op in graph.ops:
        if op.phase is not Phase.FORWARD:
            continue
        key = re.sub(r"\d+", "*", op.name), op.kind
        first.setdefault(key, op.name)
        new = {
            o.tensor
            for o in op.reads
            if graph.tensor[o.tensor].role is Role.PARAMETER and o.tensor not in known
        }
        known |= new
        for counts in (rows[key], total):
            counts.ops += 1
            counts.parameters += sum(graph.tensor[name].elements for name in new)
            counts.flops += op.flops
            counts.made_bytes += sum(graph.tensor[o.tensor].size_bytes for o in op.writes)
    lines = [
        _cells(first[key] if counts.ops == 1 else key[0], key[1], counts) for key, counts in rows.items()
    ]
    lines.append(_cells("in all", "", total))
    return fitted(
        f"{label}: forward ops for one sample",
        _HEADINGS,
        [dict(zip(_HEADINGS, cells, strict=True)) for cells in lines],
        width=width,
        drop=("kind", "makes"),
        left=("ops", "kind"),
        bold=[False] * (len(lines) - 1) + [True],
    )


def _cells(name: str, kind: str, counts: _Counts) -> list[str]:
    parameters, flops = f"{counts.parameters:,}".replace(",", " "), f"{counts.flops:.4g}"
    return [name, str(counts.ops), kind, parameters, flops, format_bytes(counts.made_bytes)]
