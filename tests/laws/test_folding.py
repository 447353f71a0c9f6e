"""Folding: the first groups, simulated alone, give every number of the full run, or are refused."""

import attrs
import numpy as np
import pytest

from sipml_core.config import read_experiment
from sipml_core.plugins import load
from sipml_core.runner import run_experiment

REGISTRY = load()
SMALL_GPT = {"name": "gpt", "layers": 2, "hidden": 256, "heads": 4, "sequence": 64, "vocabulary": 1000}
FLAT, CLUSTER = {"name": "elect-flat"}, {"name": "elect-cluster"}


def tables(topology, *, mp, dp, workload=SMALL_GPT, cluster=None, engine=None, **strategy):
    strategy = {"mp": mp, "dp": dp, "global_batch": 4 * dp, "tau_us": 1.0, **strategy}
    return {
        "title": "folding",
        "cluster": {"gpus": mp * dp, "bandwidth_gbps": 200, **(cluster or {})},
        "gpu": {"name": "v100"},
        "engine": engine or {},
        "workload": [{**workload, "strategy": strategy}],
        "topology": [topology],
    }


def run(experiment, fold):
    experiment = {**experiment, "engine": {**experiment["engine"], "fold": fold}}
    return run_experiment(read_experiment(experiment, REGISTRY)).cases[0]


def assert_same(experiment, *groups):
    """Every field of the result but the note that says how many groups ran."""
    full, folded = run(experiment, "never"), run(experiment, "require")
    dp = experiment["workload"][0]["strategy"]["dp"]
    added = [note for note in folded.notes if note not in full.notes]
    assert added in [[f"simulated {n} of {dp} groups"] for n in groups]
    assert tuple(note for note in folded.notes if note not in added) == full.notes
    for field in attrs.fields(type(full)):
        if field.name != "notes":
            expected = getattr(full, field.name)
            close = pytest.approx(expected, rel=1e-9) if isinstance(expected, float) else expected
            assert getattr(folded, field.name) == close, field.name


@pytest.mark.parametrize(("mp", "dp"), [(1, 8), (2, 2), (2, 6), (4, 5), (8, 3)])
@pytest.mark.parametrize("workload", [SMALL_GPT, {"name": "resnet50"}], ids=lambda w: w["name"])
def test_an_ideal_switch_needs_one_group(mp, dp, workload):
    assert_same(tables({**FLAT, "latency_us": 0.7}, mp=mp, dp=dp, workload=workload), 1)


@pytest.mark.parametrize("strategy", [
    {"collective": "ring"}, {"iterations": 3}, {"recompute": True}, {"bucket_bytes": 2e5},
    {"layout": "tensor"}, {"layout": "sample"}, {"collective": "ring", "iterations": 2},
])  # fmt: skip
@pytest.mark.parametrize("queue", ["pair", "source"])
def test_whatever_the_job_does(strategy, queue):
    """Explicit rings, several iterations, recomputation, small buckets, both queues."""
    for topology, groups in ((FLAT, 1), ({**CLUSTER, "server_gpus": 4, "uplink_gbps": 50}, 2)):
        assert_same(tables(topology, mp=2, dp=6, engine={"queue": queue}, **strategy), groups)


@pytest.mark.parametrize(
    ("server_gpus", "mp", "dp", "groups"),
    [(4, 1, 12, 4), (4, 2, 6, 2), (8, 2, 12, 4), (4, 4, 3, 1), (2, 4, 4, 1), (4, 6, 4, 2), (4, 3, 8, 4)],
)
@pytest.mark.parametrize("uplink", [{"uplink_gbps": 100}, {"uplink_per_gpu_gbps": 25}, {"oversubscription": 1}])
def test_servers_of_several_groups_and_groups_of_several_servers(server_gpus, mp, dp, groups, uplink):
    """The fewest groups after which server borders repeat: lcm(server, mp) / mp."""
    topology = {**CLUSTER, "server_gpus": server_gpus, "across_latency_us": 2.0, **uplink}
    assert groups == np.lcm(server_gpus, mp) // mp
    assert_same(tables(topology, mp=mp, dp=dp), groups)
