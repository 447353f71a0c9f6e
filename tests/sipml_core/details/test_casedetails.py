"""Each column of each table is what happened, as worked out in conftest.py."""

import pytest

from sipml_core.details import Selection
from sipml_core.errors import ConfigError


def values(table, *columns):
    return [table[column].tolist() for column in columns]


def test_time_of_gpus_and_what_they_waited_for(details):
    """GPU 0 waits for y until 14, then for x; GPU 1 for x, then for z; GPU 2 for z, which gates c."""
    table = details.gpus()
    assert values(table, "gpu", "replica", "stage") == [[0, 1, 2], [0, 0, 1], [0, 1, 0]]
    assert values(table, "compute_us", "exposed_us", "dark_us") == [[10, 5, 2], [6, 9, 7], [0, 0, 0]]
    assert table["idle_us"] == pytest.approx([10, 12, 17])
    assert values(table, "waits_pipeline_us", "waits_gradient_us") == [[2, 6, 0], [4, 3, 7]]
    assert values(table, "waits_tensor_us", "waits_expert_us", "waits_context_us") == [[0, 0, 0]] * 3
    assert values(table, "sent_bytes", "received_bytes") == [[6000, 3000, 0], [0, 4000, 5000]]
    assert table["simulated"].all()


def test_what_links_carried(details):
    table = details.links()
    rows = dict(zip(table["link"].tolist(), range(len(table["link"])), strict=True))
    assert set(rows) == {"egress 0", "egress 1", "ingress 1", "ingress 2"}
    egress, ingress = rows["egress 0"], rows["ingress 2"]
    assert [table[name][egress] for name in ("bytes", "pipeline_bytes", "gradient_bytes")] == [
        6000,
        4000,
        2000,
    ]
    assert [table[name][ingress] for name in ("bytes", "pipeline_bytes", "gradient_bytes")] == [5000, 0, 5000]
    assert (table["busy_us"][egress], table["busy_us"][ingress]) == (6, 7)
    assert table["gbps"].tolist() == [8.0] * 4
    assert table["peak_gbps"][egress] == pytest.approx(8.0)
    assert not table["circuit"].any()


def test_the_traffic_matrix_by_kind(details):
    assert values(details.traffic(), "src", "dst", "kind", "bytes", "transfers") == [
        [0, 0, 1], [1, 2, 2], ["pipeline", "gradient", "gradient"], [4000, 2000, 3000], [1, 1, 1],
    ]  # fmt: skip


def test_the_course_of_each_transfer(details):
    table = details.flows()
    assert values(table, "src", "dst", "bytes") == [[0, 0, 1], [1, 2, 2], [4000, 2000, 3000]]
    assert values(table, "joined_us", "left_us", "arrived_us") == [[10, 10, 21], [16, 14, 24], [16, 14, 24]]
    assert table["kind"].tolist() == ["pipeline", "gradient", "gradient"]
    assert table["waited_for"].tolist() == ["a", "a", "b"]
    assert table["held_by"][1] == "egress 0"  # the others fill both of their ports at the end
    assert table["held_by"][0] in ("egress 0", "ingress 1")
    assert table["held_by"][2] in ("egress 1", "ingress 2")
    assert table["behind"].tolist() == ["", "", ""]


def test_passes_and_collectives(details):
    passes = details.passes()
    assert values(passes, "name", "stage", "since_us", "until_us") == [
        ["F0", "F0", "B0"], [0, 1, 0], [0, 16, 24], [10, 21, 26],
    ]  # fmt: skip
    sums = details.collectives()
    assert values(sums, "bytes", "since_us", "until_us") == [[5000], [10], [24]]


def test_a_selection_leaves_out_gpus_and_times(details):
    part = details.selected(Selection(gpus=(1,)))
    assert part.gpus()["gpu"].tolist() == [1]
    assert part.flows()["transfer"].tolist() == [0, 2]
    assert part.traffic()["src"].tolist() == [0, 1]
    early = details.selected(Selection(window_us=(0.0, 15.0)))
    assert early.flows()["transfer"].tolist() == [0, 1]
    assert details.selected(Selection(replicas=(1,))).gpus()["gpu"].tolist() == [2]


@pytest.mark.parametrize(
    ("selection", "words"),
    [
        (Selection(gpus=(3,)), "--gpus must be from 0 to 2, got 3; nearest: 2"),
        (Selection(replicas=(0, 4)), "--replicas must be from 0 to 1, got 4; nearest: 1"),
        (Selection(window_us=(26.0, 30.0)), "must begin before the run of hand on ports ends, at 26 us"),
    ],
)
def test_what_is_not_in_the_run_is_refused(details, selection, words):
    with pytest.raises(ConfigError, match=words.replace("(", r"\(")):
        details.selected(selection)


def test_sizes_are_known_before_tables_are_made(details):
    """Within a factor of two and a half of what a row takes on average; of transfers, most of all rows."""
    assert details.size_bytes()["flows"] == 3 * 190
    assert details.selected(Selection(gpus=(1,))).size_bytes()["flows"] == 2 * 190
