"""The table of a plan: stages, their GPUs, neighbours and passes."""

from __future__ import annotations

import numpy as np

from sipml_core.model import Phase, Plan
from sipml_core.partition import cut_stages
from sipml_core.report.planreport import plan_tables, stage_contents
from sipml_core.workloads import Gpt


def cells(plan, contents=()):
    """The lines of both tables, put together."""
    found = []
    for table in plan_tables("gpt", plan, contents):
        columns = {str(column.header): list(map(str, column.cells)) for column in table.columns}
        lines = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        found = [one | other for one, other in zip(found, lines, strict=True)] if found else lines
    return found


def test_each_stage_is_a_line():
    """mp 4, pp 3, dp 2: stage s is on GPUs 4 s to 4 s + 3, its counterparts 12 further on."""
    rows = cells(Plan(mp=4, pp=3, dp=2, global_batch=8, micro_batch=1))
    assert [row["GPUs"] for row in rows] == ["0..3", "4..7", "8..11"]
    assert [row["beside"] for row in rows] == ["4..7", "0..3; 8..11", "4..7"]
    assert [row["next replica"] for row in rows] == ["12..15", "16..19", "20..23"]
    assert [row["held"] for row in rows] == ["3", "2", "1"]
    assert rows[2]["passes"] == "F0 B0 F1 B1 F2 B2 F3 B3"


def test_rank_order_moves_gpus():
    """Replicas before stages: the next replica is 2 GPUs on, the next stage 4."""
    rows = cells(Plan(mp=2, pp=2, dp=2, global_batch=2, rank_order=("mp", "dp", "pp")))
    assert [row["GPUs"] for row in rows] == ["0, 1", "4, 5"]
    assert [row["next replica"] for row in rows] == ["2, 3", "6, 7"]


def test_long_lists_are_shortened_in_the_middle():
    """Twelve passes from the start, twelve from the end."""
    (first, _) = cells(Plan(mp=1, pp=2, dp=1, global_batch=64, micro_batch=1))
    words = first["passes"].split()
    assert (len(words), words[0], words[12], words[-1]) == (25, "F0", "...", "B63")


def test_a_circle_of_stages_with_several_chunks():
    """The first stage is behind the last, and passes name their chunk."""
    plan = Plan(mp=1, pp=3, dp=1, global_batch=3, micro_batch=1, schedule="interleaved", chunks=2)
    rows = cells(plan)
    assert rows[0]["beside"] == "1; 2"
    assert rows[1]["passes"].startswith("F0.1 F1.1")


def test_replicas_that_share_sequences_are_counted_and_said():
    """mp 2, cp 2, dp 2, ep 2: the next replica is the next part of the sequence."""
    plan = Plan(mp=2, cp=2, dp=2, ep=2, global_batch=4)
    (row,) = cells(plan)
    assert row["next replica"] == "2, 3"
    assert row["block"] == "0, 2 .. 6"
    title = next(plan_tables("gpt", plan, ())).title
    assert str(title).startswith("gpt: mp 2 x cp 2 x pp 1 x dp 2 (ep 2), ")


def test_a_stage_says_what_it_holds_of_the_model():
    """Six layers on two stages of two chunks each: the last part has two, what takes 1 us an op."""
    graph = Gpt(Gpt.Options(layers=6, hidden=8, heads=2, sequence=4)).graph(1, "mixed")
    time_us = np.ones(len(graph.ops))
    part = cut_stages(graph, time_us, 4, stated=(1, 2, 1, 2))
    plan = Plan(mp=1, pp=2, dp=1, global_batch=2, micro_batch=1, schedule="interleaved", chunks=2)
    contents = stage_contents(graph, part, time_us, 2)
    rows = cells(plan, contents)
    assert rows[0]["holds"] == "embedding to layer0 (1 layer); layer3 (1 layer)"
    assert rows[1]["holds"] == "layer1 to layer2 (2 layers); layer4 to loss (2 layers)"
    of_stage_1 = (op.phase is not Phase.OPTIMIZER for op, p in zip(graph.ops, part, strict=True) if p % 2)
    assert rows[1]["takes"] == f"{sum(of_stage_1)} us"
