"""Folding: the first groups, simulated alone, give every number of the full run, or are refused."""

import attrs
import numpy as np
import pytest

from sipml_core.cases.running import run_experiment
from sipml_core.errors import ConfigError
from sipml_core.experiment.reading import read_experiment

SMALL_GPT = {"name": "gpt", "layers": 2, "hidden": 256, "heads": 4, "sequence": 64, "vocabulary": 1000}
FLAT, CLUSTER = {"name": "elect-flat"}, {"name": "elect-cluster"}


def tables(topology, *, mp, dp, workload=SMALL_GPT, cluster=None, engine=None, **plan):
    plan = {"mp": mp, "dp": dp, "global_batch": 4 * dp, "tau_us": 1.0, **plan}
    return {
        "title": "folding",
        "cluster": {"gpus": mp * dp, "bandwidth_gbps": 200, **(cluster or {})},
        "gpu": {"name": "v100"},
        "engine": engine or {},
        "workload": [{**workload, "strategy": plan}],
        "topology": [topology],
    }


def run(registry, experiment, fold):
    experiment = {**experiment, "engine": {**experiment["engine"], "fold": fold}}
    return run_experiment(read_experiment(experiment, registry)).cases[0]


def assert_same(registry, experiment, *groups):
    """Every field of the result but the note that says how many groups ran."""
    full, folded = run(registry, experiment, "never"), run(registry, experiment, "require")
    dp = experiment["workload"][0]["strategy"]["dp"]
    added = [note for note in folded.notes if note not in full.notes]
    assert added in [[f"simulated {n} of {dp} groups"] for n in groups]
    assert tuple(note for note in folded.notes if note not in added) == full.notes
    for field in attrs.fields(type(full)):
        if field.name != "notes":
            expected = getattr(full, field.name)
            close = pytest.approx(expected, rel=1e-9) if isinstance(expected, float) else expected
            assert getattr(folded, field.name) == close, field.name


@pytest.mark.parametrize(("mp", "dp"), [(1, 8), (2, 2), (2, 6), (8, 3)])
def test_an_ideal_switch_needs_one_group(registry, mp, dp):
    assert_same(registry, tables({**FLAT, "latency_us": 0.7}, mp=mp, dp=dp), 1)


def test_convolutions_fold_too(registry):
    assert_same(registry, tables(FLAT, mp=4, dp=5, workload={"name": "resnet50"}), 1)


@pytest.mark.parametrize("plan", [
    {"ring_steps": "explicit"}, {"iterations": 3}, {"recompute": True}, {"bucket_bytes": 2e5},
    {"layout": "tensor"}, {"layout": "sample"}, {"ring_steps": "explicit", "iterations": 2},
])  # fmt: skip
@pytest.mark.parametrize("queue", ["pair", "source"])
def test_whatever_the_job_does(registry, plan, queue):
    """Explicit rings, several iterations, recomputation, small buckets, both queues."""
    for topology, groups in ((FLAT, 1), ({**CLUSTER, "server_gpus": 4, "uplink_gbps": 50}, 2)):
        assert_same(registry, tables(topology, mp=2, dp=6, engine={"queue": queue}, **plan), groups)


@pytest.mark.parametrize(
    ("server_gpus", "mp", "dp", "groups"),
    [(4, 1, 12, 4), (4, 2, 6, 2), (8, 2, 12, 4), (4, 4, 3, 1), (2, 4, 4, 1), (4, 6, 4, 2), (4, 3, 8, 4)],
)
@pytest.mark.parametrize(
    "uplink", [{"uplink_gbps": 100}, {"uplink_per_gpu_gbps": 25}, {"oversubscription": 1}]
)
def test_servers_of_several_groups_and_groups_of_several_servers(
    registry, server_gpus, mp, dp, groups, uplink
):
    """The fewest groups after which server borders repeat: lcm(server, mp) / mp."""
    topology = {**CLUSTER, "server_gpus": server_gpus, "across_latency_us": 2.0, **uplink}
    assert groups == np.lcm(server_gpus, mp) // mp
    assert_same(registry, tables(topology, mp=mp, dp=dp), groups)


@pytest.mark.parametrize(("mp", "dp"), [(1, 8), (2, 4), (2, 6), (4, 4)])
def test_circuits_set_once_that_treat_groups_alike(registry, mp, dp):
    """A plan of the whole job's traffic that gives every group the same circuits."""
    assert_same(registry, tables({"name": "sip-ocs", "switches": 8}, mp=mp, dp=dp), 1, 2)


RING = {"name": "sip-ring", "reach_hops": 4}


@pytest.mark.parametrize(("mp", "dp", "groups"), [(1, 12, 4), (2, 8, 2), (4, 4, 1), (2, 6, 2), (3, 6, 2)])
@pytest.mark.parametrize("bandwidth_gbps", [75, pytest.param(200, marks=pytest.mark.slow), 1600])
def test_circuits_replanned_for_all_groups_alike(registry, mp, dp, groups, bandwidth_gbps):
    """The least groups that no circuit outreaches: 4 GPUs, or 6. With 3 wavelengths pairs take turns."""
    cluster = {"bandwidth_gbps": bandwidth_gbps}
    assert_same(registry, tables(RING, mp=mp, dp=dp, cluster=cluster), groups)


@pytest.mark.parametrize("change", [
    {"wavelength": "converted"}, {"all_dark": True}, {"reconfiguration": "hwsim"}, {"interval_us": 30},
    {"estimator": "backlog"}, {"estimator": "oracle"},
])  # fmt: skip
@pytest.mark.parametrize(
    "plan",
    [
        pytest.param({"ring_steps": "explicit"}, marks=pytest.mark.slow),
        {"iterations": 2, "counter_rotating": True},
        {"exchange": "direct"},
    ],
)
def test_whatever_replanned_circuits_do(registry, change, plan):
    assert_same(registry, tables({**RING, **change}, mp=4, dp=4, **plan), 1)


def test_the_lower_bound_itself_folds(registry):
    assert_same(registry, tables({**FLAT, "sharing": "bound"}, mp=2, dp=4), 1)


def test_speeds_that_repeat(registry):
    assert_same(registry, tables(FLAT, mp=2, dp=4, cluster={"gpu_speed": {"1": 0.5, "5": 0.5}}), 2)


REFUSED = [
    ({"name": "sip-ring"}, {}, "re-planned circuits can differ between groups"),
    ({**RING, "scheduler": "ring-mcf"}, {}, "'ring-mcf' may treat groups"),
    ({"name": "sip-ocs", "switches": 4, "interval_us": 500, "reconfiguration_us": 5}, {}, "re-planned"),
    (FLAT, {"jitter": 0.1}, "jitter gives every task a duration of its own"),
    (FLAT, {"gpu_speed": {"3": 0.5}}, r"differ in speed \(gpu_speed\) between 2 groups and the next 2"),
    ({**CLUSTER, "server_gpus": 3}, {}, "between 2 groups and the next 2"),
]


@pytest.mark.parametrize(("topology", "cluster", "reason"), REFUSED)
def test_where_groups_differ_folding_is_refused(registry, topology, cluster, reason):
    """ "require" says why; "auto" simulates all groups and gives what "never" gives, note for note."""
    experiment = tables(topology, mp=2, dp=4, cluster=cluster)
    with pytest.raises(ConfigError, match=f'fold = "require", but on .* groups are not alike: .*{reason}'):
        run(registry, experiment, "require")
    assert run(registry, experiment, "auto") == run(registry, experiment, "never")


def test_one_group_is_all_there_is(registry):
    """dp = 1: nothing to fold, nothing to refuse, nothing to note."""
    experiment = tables(FLAT, mp=4, dp=1)
    assert run(registry, experiment, "require") == run(registry, experiment, "never")


def test_relays_fold_only_if_all_groups_relay_alike(registry):
    """Two circuits per GPU: the other pairs are relayed by whoever is least loaded, which need not repeat."""
    experiment = tables({"name": "sip-ocs", "switches": 3, "relay": True}, mp=4, dp=4)
    full, auto = run(registry, experiment, "never"), run(registry, experiment, "auto")
    assert auto.iteration_us == pytest.approx(full.iteration_us, rel=1e-9)
    assert auto.exposed_us == pytest.approx(full.exposed_us, rel=1e-9)
