"""The table and files of a circuit plan: each column shows the field it says."""

import json

import attrs
import numpy as np
import pytest

from sipml_core.model.circuits import CircuitPlan
from sipml_core.model.traffic import TrafficMatrix
from sipml_core.report.circuitreport import plan_summary, plan_table, summary_lines, write_plan

#: 0 -> 1 wants 8 and gets 40 Gbps: 5 each; 1 -> 2 wants 10 and gets 20: 2 each; 2 -> 0 wants 3, gets none.
TRAFFIC = TrafficMatrix.from_pairs(4, [0, 1, 2], [1, 2, 0], [8.0, 10.0, 3.0])


@attrs.frozen(kw_only=True, eq=False)
class Bounded(CircuitPlan):
    """A plan of which it is known that nothing beats 4 Gbps for each unit of demand."""

    @property
    def bound_ratio(self):
        return 4.0


def plan(kind=CircuitPlan, **changes):
    fields = dict(
        gpus=4, src=[0, 1], dst=[1, 2], gbps=[40.0, 20.0], kept_gbps=[7.0, 9.0], dark_us=[11.0, 13.0]
    )
    return kind(**{**fields, **changes})


def test_every_column_shows_the_field_it_says(columns):
    """The worst served first."""
    assert columns(plan_table(plan(), TRAFFIC, "mine")) == {
        "from": ["2", "1", "0"],
        "to": ["0", "2", "1"],
        "demand": ["3", "10", "8"],
        "capacity [Gbps]": ["0", "20", "40"],
        "capacity / demand": ["0", "2", "5"],
    }


def test_the_twelve_worst_pairs_are_shown(columns):
    """14 pairs that want 1 to 14: who wants most is served worst."""
    here = np.arange(14)
    traffic = TrafficMatrix.from_pairs(14, here, (here + 1) % 14, 1.0 + here)
    ring = CircuitPlan(
        gpus=14, src=traffic.src, dst=traffic.dst, gbps=np.ones(14), kept_gbps=np.ones(14),
        dark_us=np.zeros(14),
    )  # fmt: skip
    table = plan_table(ring, traffic, "mine")
    assert columns(table)["demand"] == [str(wanted) for wanted in range(14, 2, -1)]
    assert table.caption == "the 12 worst served of 14 pairs; all are in plan.csv"


SUMMARY = {
    "gpus": 4,
    "demanded_pairs": 3,
    "unserved_pairs": [[2, 0]],
    "minimum_gbps_per_demand": 0.0,
    "minimum_of_served_gbps_per_demand": 2.0,
    "bound_gbps_per_demand": None,
    "demanded_gbps": 60.0,
    "total_gbps": 60.0,
}


def test_the_summary_names_pairs_from_sender_to_receiver_and_ratios_are_capacity_by_demand():
    assert plan_summary(plan(), TRAFFIC) == SUMMARY
    assert plan_summary(plan(Bounded), TRAFFIC) == {**SUMMARY, "bound_gbps_per_demand": 4.0}


def test_without_traffic_there_are_no_ratios():
    summary = plan_summary(plan(), TrafficMatrix.from_pairs(4, [], [], []))
    assert (summary["minimum_gbps_per_demand"], summary["minimum_of_served_gbps_per_demand"]) == (None, None)


def test_the_share_of_the_bound_is_what_was_reached_by_what_can_be():
    """2 of 4 is 50 %; the pair without circuit is named from sender to receiver."""
    served = TrafficMatrix.from_pairs(4, [0, 1], [1, 2], [8.0, 10.0])
    assert summary_lines(plan_summary(plan(Bounded), served)) == [
        "total capacity 60 Gbps over 2 demanded pairs",
        "least capacity / demand 2, 50.0% of the bound 4",
    ]
    assert summary_lines(plan_summary(plan(), TRAFFIC)) == [
        "total capacity 60 Gbps over 3 demanded pairs",
        "least capacity / demand 0",
        "1 pairs get no circuit in this plan: 2->0",
    ]


def test_capacity_of_pairs_that_ask_for_nothing_is_told_apart():
    """40 of 60 Gbps join the one pair that asks."""
    traffic = TrafficMatrix.from_pairs(4, [0], [1], [8.0])
    summary = plan_summary(plan(), traffic)
    assert (summary["demanded_gbps"], summary["total_gbps"]) == (40.0, 60.0)
    assert summary_lines(summary)[0] == (
        "total capacity 40 Gbps over 1 demanded pairs, and 20 Gbps between pairs that ask for nothing"
    )


def test_plan_csv_and_plan_json_hold_each_field_under_its_name(tmp_path, records):
    assert write_plan(plan(), TRAFFIC, tmp_path, picture=False) == [
        tmp_path / "plan.csv", tmp_path / "plan.json",
    ]  # fmt: skip
    assert records(tmp_path / "plan.csv") == [
        {"src": "0", "dst": "1", "capacity_gbps": "40.0"},
        {"src": "1", "dst": "2", "capacity_gbps": "20.0"},
    ]
    assert json.loads((tmp_path / "plan.json").read_text()) == SUMMARY


def test_the_picture_shows_demand_and_capacity_with_the_sender_as_row(monkeypatch, tmp_path):
    """Row 0, column 1 is what GPU 0 wants to send, and may send, to GPU 1."""
    pytest.importorskip("matplotlib")
    from sipml_core.report import circuitreport

    shown = []
    monkeypatch.setattr(circuitreport, "figure_bytes", lambda figure: shown.append(figure) or b"")
    write_plan(plan(), TRAFFIC, tmp_path, picture=True)
    demand, capacity = (axes.images[0].get_array().filled(0) for axes in shown[0].axes[:2])
    assert (demand[0, 1], demand[1, 2], demand[2, 0], demand.sum()) == (8, 10, 3, 21)
    assert (capacity[0, 1], capacity[1, 2], capacity.sum()) == (40, 20, 60)
    titles = [axes.get_title() for axes in shown[0].axes[:2]]
    assert titles == ["demand", "capacity of circuits [Gbps]"]
