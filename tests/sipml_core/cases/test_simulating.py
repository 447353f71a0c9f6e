"""Of the variants of a case the fastest is its result, however it is found."""

import pytest

from sipml_core.cases import Case, Clock, Reuse, simulating
from sipml_core.cases.compilation import prepare_case
from sipml_core.cases.simulating import fastest_of_case, fastest_variant
from sipml_core.errors import TooSlowError
from sipml_core.experiment import read_experiment

GPT = {"name": "gpt", "layers": 2, "hidden": 1024, "heads": 16, "sequence": 128, "vocabulary": 1000}
RING = {"name": "sip-ring", "reach_hops": 3}
CLUSTER = {"name": "elect-cluster", "server_gpus": 4, "uplink_gbps": 100}


def case_on(registry, network, fold="never", cluster=(), **engine):
    experiment = read_experiment(
        {
            "title": "variants",
            "cluster": {"gpus": 16, "bandwidth_gbps": 100, **dict(cluster)},
            "workload": {**GPT, "strategy": {"mp": 2, "dp": 8, "global_batch": 16}},
            "engine": {"fold": fold, **engine},
            "topology": network,
        },
        registry,
    )
    (job,), (interconnect,) = experiment.jobs, experiment.interconnects
    return Case.of(experiment, job, interconnect, job.plan(16))


@pytest.fixture
def simulated(monkeypatch):
    """Groups that compute in each run of the engine."""
    groups, simulate = [], simulating.simulate

    def counted(tasks, *given, **named):
        groups.append(len({gpu // 2 for gpu in tasks.gpu.tolist() if gpu >= 0}))
        return simulate(tasks, *given, **named)

    monkeypatch.setattr(simulating, "simulate", counted)
    return groups


def variants_of(case):
    reuse = Reuse()
    return prepare_case(case, reuse), reuse


@pytest.mark.interconnects
@pytest.mark.parametrize(
    ("network", "gbps"),
    [(CLUSTER, 100), ({"name": "sip-ocs"}, 100), ({**RING, "demand": "auto"}, 200)],
    ids=["layouts by price", "rounds", "rules, re-planned"],
)
def test_every_gpu_of_the_fastest_is_simulated_and_of_no_other(registry, network, gbps, simulated):
    """The fastest folded is the fastest of all, for folding is exact; its row is that of all groups."""
    variants, reuse = variants_of(case_on(registry, network, cluster={"bandwidth_gbps": gbps}))
    assert len(variants) > 1
    found = fastest_of_case(variants, reuse, Clock())
    folded, whole = simulated[:-1], simulated[-1]
    assert whole == 8
    assert max(folded) < 8
    simulated.clear()
    every = fastest_variant(variants, Clock())
    assert set(simulated) == {8}
    assert found.row.iteration_us == every.row.iteration_us
    assert found.row.notes == every.row.notes
    assert (found.row.one_round_us or 0) == pytest.approx(every.row.one_round_us or 0, rel=1e-9)
    assert len(found.timeline.start_us) == len(every.timeline.start_us)


@pytest.mark.interconnects
@pytest.mark.parametrize(
    ("network", "more"),
    [
        (CLUSTER, {"cluster": {"jitter": 0.1}}),
        ({"name": "sip-ocs", "interval_us": 100, "reconfiguration_us": 20}, {}),
        (CLUSTER, {"fold": "auto"}),
    ],
    ids=["jitter", "plans that part", "folded anyway"],
)
def test_where_folding_tells_nothing_all_are_simulated(registry, network, more, simulated):
    variants, reuse = variants_of(case_on(registry, network, **more))
    fastest_of_case(variants, reuse, Clock())
    runs = len(simulated)
    simulated.clear()
    fastest_variant(variants, Clock())
    assert runs == len(simulated)
    assert len(set(simulated)) == 1


@pytest.mark.interconnects
@pytest.mark.parametrize("fold", ["auto", "never"])
def test_a_case_is_too_slow_folded_or_not(registry, fold):
    variants, reuse = variants_of(case_on(registry, CLUSTER, fold, max_time_us=100))
    with pytest.raises(TooSlowError):
        fastest_of_case(variants, reuse, Clock())
