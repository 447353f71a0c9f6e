"""Ops are cut with every price that a network may give, and the fastest layout is kept."""

import numpy as np
import pytest

from sipml_core.cases import Case, Clock, Reuse, case_traffic, compilation, simulate_variants
from sipml_core.cases.compilation import prepare_case
from sipml_core.cases.networkprices import layout_prices, network_prices
from sipml_core.cases.simulating import fastest_variant
from sipml_core.errors import InfeasibleError
from sipml_core.experiment import read_experiment
from sipml_core.model import Fabric, Plan, Routes

GPT = {"name": "gpt", "layers": 1, "hidden": 1024, "heads": 16, "sequence": 128, "vocabulary": 1000}


def servers_of_two(uplink_gbps):
    """Two servers of two GPUs with ports of 100 Gbps: link of a GPU's port, then of a server's uplink."""

    def route(src, dst):
        uplink = np.where(src // 2 == dst // 2, -1, 4 + src // 2)
        return Routes(links=np.column_stack([src, uplink]), latency_us=np.zeros(len(src)))

    return Fabric(gpus=4, link_gbps=[100.0] * 4 + [uplink_gbps] * 2, route=route)


@pytest.mark.parametrize(
    ("mp", "uplink_gbps", "expected"),
    [
        # Both GPUs of a server send gradients over 40 Gbps, or one of them; groups stay inside.
        (2, 40.0, [(100, 20), (100, 40), (100, 100)]),
        # Of the 4 pairs on an uplink each gets 10 Gbps, and a GPU sends to 3; alone it has 2 pairs there.
        (4, 40.0, [(30, 100), (60, 100), (100, 100)]),
        # Alone, a GPU has its port: that is one price less.
        (2, 160.0, [(100, 80), (100, 100)]),
        (2, 200.0, [(100, 100)]),
    ],
)
def test_prices_go_from_all_gpus_at_once_to_the_port(mp, uplink_gbps, expected):
    plan = Plan(mp=mp, dp=4 // mp, global_batch=4)
    fabric = servers_of_two(uplink_gbps)
    found = layout_prices(fabric, plan, 100.0)
    assert [(each.group_gbps, each.replica_gbps) for each in found] == [pytest.approx(e) for e in expected]
    assert found[0] == network_prices(fabric, plan, 100.0)


def case_on(registry, network, gbps=100, **strategy):
    experiment = read_experiment(
        {
            "title": "prices",
            "cluster": {"gpus": 8, "bandwidth_gbps": gbps},
            "gpu": {"name": "v100", "precision": "mixed"},
            "workload": {**GPT, "strategy": {"mp": 2, "dp": 4, "global_batch": 16, **strategy}},
            "topology": network,
        },
        registry,
    )
    (job,), (interconnect,) = experiment.jobs, experiment.interconnects
    return Case.of(experiment, job, interconnect, job.plan(8))


def cluster(uplink_gbps):
    return {"name": "elect-cluster", "server_gpus": 4, "uplink_gbps": uplink_gbps}


@pytest.mark.interconnects
@pytest.mark.parametrize(("gbps", "uplink_gbps", "wins"), [(100, 100, True), (400, 100, False)])
def test_the_fastest_layout_is_kept(registry, gbps, uplink_gbps, wins):
    """At 100 Gbps that of the port is: few send gradients at a time; at 400 Gbps that of all at once."""
    case, reuse = case_on(registry, cluster(uplink_gbps), gbps), Reuse()
    prepared = prepare_case(case, reuse)
    times_us = {}
    for note in dict.fromkeys(each.variant.price_note for each in prepared):
        mine = [each for each in prepared if each.variant.price_note == note]
        times_us[note] = fastest_variant(mine, Clock()).row.iteration_us
    assert next(iter(times_us)) == ""
    row = simulate_variants(case, reuse, Clock()).row
    assert row.iteration_us == min(times_us.values())
    assert (row.iteration_us < 0.99 * times_us[""]) == wins
    note = f"ops are cut as if a GPU had {gbps} Gbps for gradients, not the {uplink_gbps / 2:g} Gbps"
    assert any(each.startswith(note) for each in row.notes) == wins


@pytest.mark.interconnects
def test_a_layout_that_several_prices_choose_is_a_variant_once(registry):
    """Uplinks of 25 Gbps have three prices, two of which cut alike; estimates see the same layouts."""
    case = case_on(registry, cluster(25))
    prepared = prepare_case(case, Reuse())
    cuts = {each.variant.price_note: each.variant.placement.graph for each in prepared}
    assert len(cuts) == len({(graph.split_dim, tuple(graph.parts)) for graph in cuts.values()}) == 2
    estimated = [traffic.variant.price_note for traffic in case_traffic(case, Reuse())]
    assert estimated == [each.variant.price_note for each in prepared]


@pytest.mark.interconnects
@pytest.mark.parametrize(
    ("network", "strategy"),
    [
        ({"name": "elect-flat"}, {}),
        ({"name": "sip-ocs", "rounds": 1}, {}),
        (cluster(25), {"layout": "tensor"}),
        (cluster(25), {"mp": 1, "dp": 8}),
    ],
    ids=["no shared links", "circuits, one round", "named layout", "nothing to cut"],
)
def test_elsewhere_there_is_one_layout(registry, network, strategy):
    prepared = prepare_case(case_on(registry, network, **strategy), Reuse())
    assert len({id(each.variant.placement.graph) for each in prepared}) == 1
    assert {each.variant.price_note for each in prepared} == {""}


@pytest.mark.interconnects
def test_a_layout_that_does_not_fit_does_not_refuse_the_others(registry, monkeypatch):
    case = case_on(registry, cluster(100))
    usual = prepare_case(case, Reuse())[0].variant.placement.graph
    build = compilation.variants_of

    def refusing(*given):
        found = build(*given)
        if found[0].placement.graph.split_dim == usual.split_dim:
            raise InfeasibleError("too large")
        return found

    monkeypatch.setattr(compilation, "variants_of", refusing)
    assert {bool(each.variant.price_note) for each in prepare_case(case, Reuse())} == {True}
