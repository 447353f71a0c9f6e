"""The table of a plan: stages, their GPUs, neighbours and passes."""

from __future__ import annotations

from sipml_core.model import Plan
from sipml_core.report.planreport import plan_table


def cells(plan):
    table = plan_table("gpt", plan)
    columns = {column.header: list(column.cells) for column in table.columns}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def test_each_stage_is_a_line():
    """mp 4, pp 3, dp 2: stage s is on GPUs 4 s to 4 s + 3, its counterparts 12 further on."""
    rows = cells(Plan(mp=4, pp=3, dp=2, global_batch=8, micro_batch=1))
    assert [row["GPUs of replica 0"] for row in rows] == ["0..3", "4..7", "8..11"]
    assert [row["stages beside it"] for row in rows] == ["4..7", "0..3; 8..11", "4..7"]
    assert [row["next replica"] for row in rows] == ["12..15", "16..19", "20..23"]
    assert [row["micro-batches held"] for row in rows] == ["3", "2", "1"]
    assert rows[2]["passes"] == "F0 B0 F1 B1 F2 B2 F3 B3"


def test_rank_order_moves_gpus():
    """Replicas before stages: the next replica is 2 GPUs on, the next stage 4."""
    rows = cells(Plan(mp=2, pp=2, dp=2, global_batch=2, rank_order=("mp", "dp", "pp")))
    assert [row["GPUs of replica 0"] for row in rows] == ["0, 1", "4, 5"]
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
    assert rows[0]["stages beside it"] == "1; 2"
    assert rows[1]["passes"].startswith("F0.1 F1.1")


def test_replicas_that_share_sequences_are_counted_and_said():
    """mp 2, cp 2, dp 2, ep 2: the next replica is the next part of the sequence."""
    plan = Plan(mp=2, cp=2, dp=2, ep=2, global_batch=4)
    (row,) = cells(plan)
    assert row["next replica"] == "2, 3"
    assert plan_table("gpt", plan).title.startswith("gpt: mp 2 x cp 2 x pp 1 x dp 2 (ep 2), ")
