"""What `auto` exchanges and all-reduces cost, and that what they leave out is never the fastest."""

import pytest

from sipml_core.cases import Case, Clock, Reuse, compile_case, simulate_variants, simulating
from sipml_core.engine.simulation import simulate
from sipml_core.experiment.reading import read_experiment

GPT = {"name": "gpt", "layers": 1, "hidden": 1024, "heads": 16, "sequence": 512, "vocabulary": 1000}
#: Degrees of model parallelism on 32 GPUs, and bandwidths of a GPU. [Gbps]
GRID = [(mp, gbps) for mp in (4, 16) for gbps in (128, 8192)]


def case_of(registry, network, mp, gbps, exchange):
    plan = {"mp": mp, "dp": 32 // mp, "global_batch": 32, "layout": "tensor", "exchange": exchange}
    experiment = read_experiment(
        {
            "title": "cost",
            "cluster": {"gpus": 32, "bandwidth_gbps": gbps},
            "engine": {"fold": "auto"},
            "workload": {**GPT, "strategy": plan},
            "topology": {"name": network},
        },
        registry,
    )
    job, interconnect = experiment.jobs[0], experiment.interconnects[0]
    return Case.of(experiment, job, interconnect, job.plan(32))


@pytest.fixture
def simulations(monkeypatch):
    """simulations(case): its row, and how many variants were simulated, to the end or not."""

    def run(case):
        found = []

        def counted(*args, **kwargs):
            found.append(1)
            return simulate(*args, **kwargs)

        monkeypatch.setattr(simulating, "simulate", counted)
        return simulate_variants(case, Reuse(), Clock()).row, len(found)

    return run


@pytest.mark.parametrize(
    "network", ["elect-flat", "elect-cluster", "sip-ocs", pytest.param("sip-ring", marks=pytest.mark.slow)]
)
def test_auto_simulates_at_most_twice_what_one_exchange_does(registry, simulations, network):
    """Over the grid together, with every all-reduce that either offers."""
    auto, direct = (
        sum(simulations(case_of(registry, network, mp, gbps, exchange))[1] for mp, gbps in GRID)
        for exchange in ("auto", "direct")
    )
    assert 0 < auto <= 2 * direct


@pytest.mark.parametrize(
    ("network", "mp", "gbps"),
    [(network, *point) for network in ("elect-cluster", "sip-ocs") for point in GRID]
    + [("sip-ring", 4, 128)],
)
def test_what_is_not_simulated_is_not_the_fastest(registry, simulations, network, mp, gbps):
    """The row is that of the fastest of all variants, each simulated by itself to its end."""
    case = case_of(registry, network, mp, gbps, "auto")
    times_us = {
        (each.plan.exchange, each.plan.all_reduce): simulate(
            each.tasks, each.network, driver=each.circuits, queue=case.engine.queue
        ).total_us
        for each in compile_case(case, Reuse())
    }
    row, _ = simulations(case)
    assert len(times_us) > 1
    assert row.measured_us == min(times_us.values()) == times_us[row.exchange, row.all_reduce]
