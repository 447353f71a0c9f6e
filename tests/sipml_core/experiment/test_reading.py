import copy
import importlib.util
import re
from pathlib import Path

import pytest

from sipml_core.errors import ConfigError
from sipml_core.experiment.model import divisors
from sipml_core.experiment.reading import read_experiment, read_tables
from sipml_core.experiment.resolving import resolved_tables
from sipml_core.plugin import load

_spec = importlib.util.spec_from_file_location("fakes", Path(__file__).parents[1] / "fakes.py")
fakes = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(fakes)

GOOD = {
    "title": "a test",
    "cluster": {"gpus": 8, "bandwidth_gbps": "2 Tbps"},
    "workload": [{"name": "tiny", "strategy": {"mp": 2, "dp": 4, "global_batch": 64}}],
    "topology": [{"name": "ring"}, {"name": "switch"}],
}


def read(**changes):
    tables = copy.deepcopy(GOOD)
    for path, value in changes.items():
        node = tables
        *parents, last = path.split("__")
        for key in parents:
            node = node[int(key) if key.isdigit() else key]
        node[int(last) if last.isdigit() else last] = value
    return read_experiment(tables, fakes.fake_registry())


def refusal(**changes):
    with pytest.raises(ConfigError) as caught:
        read(**changes)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_good_file_becomes_an_experiment():
    """Defaults are filled in: the baseline is the first topology, each topology brings its scheduler."""
    experiment = read()
    assert experiment.baseline == "ring"
    assert experiment.interconnects[0].cluster.bandwidth_gbps == 2000.0
    assert experiment.interconnects[0].scheduler.name == "greedy"
    assert experiment.interconnects[1].scheduler is None
    plan = experiment.jobs[0].plan(8)
    assert (plan.mp, plan.dp, plan.global_batch, plan.tau_us) == (2, 4, 64, 10.0)


def test_one_table_need_not_be_a_list():
    experiment = read(topology={"name": "switch"}, workload={"name": "tiny"})
    assert [interconnect.label for interconnect in experiment.interconnects] == ["switch"]


def test_plan_and_strategy_are_two_names_of_one_table():
    """Keys count wherever they are, a workload's own win, and a key in both is refused."""
    one = read(
        plan={"pp": 2, "tau_us": 5}, workload__0__strategy={}, workload__0__plan={"mp": 2, "micro_batch": 16}
    )
    plan = one.jobs[0].plan(8)
    assert (plan.mp, plan.pp, plan.dp, plan.tau_us, plan.micro_batches) == (2, 2, 2, 5.0, 2)
    message = refusal(plan={"tau_us": 5}, strategy={"tau_us": 6})
    assert "plan.tau_us and strategy.tau_us are the same key; give one" in message


def test_degrees_name_what_would_do():
    """A product that is not the number of GPUs, or stages that do not divide it, names the nearest."""
    assert "mp x pp x dp must be 8 GPUs, got mp=3, pp=2; nearest valid: mp=2, dp=2 or mp=4, dp=1" in refusal(
        workload__0__strategy={"mp": 3, "pp": 2}
    )
    assert "pp must divide 8 GPUs, got 3; nearest: 2 or 4" in refusal(
        workload__0__strategy={"mp": 2, "pp": 3}
    )


def test_strategy_defaults_are_overridden_by_the_workloads_own():
    experiment = read(strategy={"tau_us": 5, "mp": 4, "dp": 2}, workload__0__strategy={"mp": 8, "dp": 1})
    plan = experiment.jobs[0].plan(8)
    assert (plan.tau_us, plan.mp) == (5.0, 8)


def test_one_degree_gives_the_other_and_none_means_search():
    assert read(workload__0__strategy={"mp": 2}).jobs[0].plan(8).dp == 4
    assert read(workload__0__strategy={"dp": 2}).jobs[0].plan(8).mp == 4
    assert read(workload__0__strategy={}).jobs[0].searched


def test_a_topology_may_have_its_own_bandwidth():
    experiment = read(topology=[{"name": "ring", "bandwidth_gbps": "1 Tbps"}, {"name": "switch"}])
    assert [i.cluster.bandwidth_gbps for i in experiment.interconnects] == [1000.0, 2000.0]


def test_a_topology_names_its_estimator_or_takes_the_schedulers():
    """By name, as a table with options, or left out; without a scheduler there is none."""
    ring, switch = read().interconnects
    assert ring.estimator.name == "window"
    assert switch.estimator is None
    chosen = read(topology__0__estimator={"name": "window", "share": 0.5}).interconnects[0].estimator
    assert chosen.options.share == 0.5


@pytest.mark.parametrize("bandwidth", [0, -1, "fast", float("nan")])
def test_a_bandwidth_that_is_none_is_refused(bandwidth):
    assert "cluster.bandwidth_gbps must be" in refusal(cluster__bandwidth_gbps=bandwidth)


@pytest.mark.parametrize("gpus", [0, -8, 70000])
def test_a_number_of_gpus_outside_the_range_is_refused(gpus):
    """70000 wraps a 16-bit integer in the paper's simulator."""
    assert f"cluster.gpus must be from 1 to 65536, got {gpus}" in refusal(cluster__gpus=gpus)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cluster__gpu_speed": {"01": 0.5}}, "gpu_speed must name GPUs by their numbers, 0, 1, ..., got"),
        ({"cluster__gpu_speed": {"01": 0.5, "1": 1.0}}, "got '01'"),
        ({"cluster__gpu_speed": {1: 0.5, "1": 1.0}}, "cluster.gpu_speed gives GPU 1 twice"),
        ({"cluster__gpu_speed": {"1": True}}, "cluster.gpu_speed must give GPU 1 a number, got True"),
        ({"cluster__gpu_speed": {"1": "0.5"}}, "cluster.gpu_speed must give GPU 1 a number, got '0.5'"),
        ({"cluster__gpu_speed": {"1": 1e-9}}, "must give GPU 1 a speed from 0.001 to 1000, got 1e-09"),
        ({"cluster__gpu_speed": {"8": 0.5}}, "gpu_speed names GPUs 0..7, got 8 = 0.5"),
        ({"cluster__gpu_speed": [0.5]}, "must be a table of GPU = speed"),
        ({"cluster__gpus": 10**400}, "cluster.gpus must be from 1 to 65536, got 1000"),
        ({"cluster__gpus": 10**5000}, "cluster.gpus must be from 1 to 65536, got an integer of"),
        ({"cluster__jitter": 10**400}, "cluster.jitter must be a number below 1.8e308, got 1000"),
        ({"workload__0__strategy__global_batch": 4 * 10**21}, "global_batch must be from 1 to 1073741824"),
        ({"workload__0__strategy": {"mp": 2**63}}, "mp must be from 1 to 65536, got 9223372036854775808"),
        ({"search": {"top": 10**9}}, "search.top must be from 1 to 10000"),
        ({"search": {"further": -1}}, "search.further must be from 0 to 10000"),
        ({"search": {"global_batches": [2**40]}}, "global_batches must be from 1 to 1073741824"),
        ({"gpu": {"precision": "x" * 3000}}, "gpu.precision must be one of"),
        ({"x" * 3000: 1}, "xx is not a known key"),
        ({"topology": [{"name": "x" * 3000}]}, "no topology 'xxx"),
        ({"topology": [{"name": "two\nlines"}]}, "no topology 'two"),
        ({"two\nlines": 1}, "is not a known key"),
        ({"title": "x" * 101}, "title must have at most 100 letters, got 'xxx"),
        ({"topology__0__label": "x" * 101}, "topology[0].label must be text in quotes, one line of 1 to 100"),
        ({"topology__0__label": "two\nlines"}, "topology[0].label must be text in quotes, one line"),
    ],
)  # fmt: skip
def test_values_without_measure_keep_their_key_and_stay_short(changes, message):
    """Long integers and texts are shortened, whatever says no to them."""
    assert message in refusal(**changes)
    assert len(refusal(**changes)) < 400


def test_degrees_that_do_not_multiply_get_the_nearest_valid_pairs():
    """7 is prime: only 1 x 7 and 7 x 1 are possible."""
    message = refusal(cluster__gpus=7, workload__0__strategy={"mp": 4})
    assert "workload.strategy.mp x dp must be 7 GPUs" in message
    assert "mp=1, dp=7 or mp=7, dp=1" in message
    assert "got mp=3, dp=5" in refusal(cluster__gpus=16, workload__0__strategy={"mp": 3, "dp": 5})


@pytest.mark.parametrize(
    ("strategy", "nearest"),
    [
        # Of 8 GPUs mp 2 leaves 4 and dp 4 leaves 2; of mp 8 no stage is left but one.
        ({"mp": 2, "pp": 100}, "got 100; nearest: 4 or 2"),
        ({"dp": 4, "pp": 100}, "got 100; nearest: 2 or 1"),
        ({"mp": 8, "pp": 3}, "got 3; nearest: 1"),
        ({"mp": 2, "pp": 2, "cp": 3}, "cp must divide 4 GPUs, got 3; nearest: 2 or 1"),
    ],
)
def test_a_degree_that_does_not_divide_gets_the_nearest_beside_the_others(strategy, nearest):
    assert nearest in refusal(cluster__gpus=8, workload__0__strategy=strategy)


def test_a_batch_smaller_than_dp_gets_the_nearest():
    message = refusal(workload__0__strategy={"mp": 1, "dp": 8, "global_batch": 4})
    assert "global_batch must be a multiple of dp=8, got 4; nearest: 8" in message


def test_a_mistyped_topology_gets_the_nearest_and_all_known():
    message = refusal(topology=[{"name": "rnig"}])
    assert "topology.name: no topology 'rnig'; did you mean 'ring'? known: ring, switch" in message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"topology": "ring"}, "topology must be a list of tables"),
        ({"topology": []}, "topology must have at least one table"),
        ({"topology": [3]}, "topology must be a list of tables"),
        ({"topology": [{}]}, "topology.name is required; known: ring, switch"),
        ({"topology": [{"name": 3}]}, "topology.name must be text"),
        ({"topology__0__reach_hop": 3}, "topology[0].reach_hop is not a known key; did you mean"),
        ({"topology__0__reach_hops": 0}, "topology[0].reach_hops must be at least 1, got 0"),
        ({"topology__0__estimator": "windwo"}, "topology[0].estimator.name: no estimator 'windwo'; did you"),
        ({"topology__0__estimator": {"name": "window", "share": 2}}, "[0].estimator.share must be from 0"),
        ({"topology__0__scheduler": "greddy"}, "no scheduler 'greddy'; did you mean 'greedy'?"),
        ({"topology": [{"name": "ring"}, {"name": "ring"}]}, "topology 'ring' appears twice"),
        ({"workload__0__layres": 3}, "workload.layres is not a known key; did you mean 'layers'?"),
        ({"workload__0__strategy__tau": 3}, "strategy.tau is not a known key; did you mean 'tau_us'?"),
        ({"gpu": {"name": "v1000"}}, "gpu.name: no gpu 'v1000'; did you mean 'v100'?"),
        ({"gpu": {"precision": "fp4"}}, "gpu.precision must be one of"),
        ({"clutser": {}}, "experiment.clutser is not a known key; did you mean 'cluster'?"),
        ({"title": "../x"}, "title must be letters"),
        ({"seed": -1}, "experiment.seed must be from 0 to"),
        ({"baseline": "rnig"}, "baseline: no topology 'rnig'; did you mean 'ring'?"),
        ({"engine": {"queue": "par"}}, "engine.queue must be one of pair, source"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_key_and_the_remedy(changes, message):
    assert message in refusal(**changes)


def test_a_missing_section_is_named():
    tables = copy.deepcopy(GOOD)
    del tables["cluster"]
    with pytest.raises(ConfigError, match=r"^experiment\.cluster is required$"):
        read_experiment(tables, fakes.fake_registry())


def test_a_file_that_is_not_toml_is_refused(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text("title = \n")
    with pytest.raises(ConfigError, match="is not TOML"):
        read_tables(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not TOML"):
        read_tables(path)


def test_a_file_that_is_missing_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot read .*x\.toml"):
        read_tables(tmp_path / "x.toml")


def test_divisors_are_all_of_them():
    """12 = 1 x 12 = 2 x 6 = 3 x 4; a square has an odd number of divisors."""
    assert divisors(12) == [1, 2, 3, 4, 6, 12]
    assert divisors(16) == [1, 2, 4, 8, 16]
    assert divisors(1) == [1]


@pytest.mark.parametrize(
    ("tables", "path", "home"),
    [
        ({"engine": {"exchange": "chain"}}, "engine.exchange", "plan"),
        ({"strategy": {"fold": "auto"}}, "workload.strategy.fold", "engine"),
        ({"cluster": {"gpus": 4, "bandwidth_gbps": 1, "top": 2}}, "cluster.top", "search"),
        ({"exchange": "chain"}, "experiment.exchange", "plan"),
    ],
)
def test_a_key_in_the_wrong_section_is_told_the_right_one(tables, path, home):
    key = path.rpartition(".")[2]
    with pytest.raises(ConfigError, match=rf"^{path} is not a known key; {key} belongs in \[{home}\]$"):
        read(**tables)


@pytest.mark.interconnects
def test_what_a_component_refuses_is_named_with_its_table(registry):
    """Its own message begins with the option; of several workloads the reader sees which."""
    bert = {"name": "bert-large", "label": "long", "sequence": 4096}
    with pytest.raises(ConfigError, match=r"^workload\[1\]\.sequence must be at most the 512 tokens"):
        read_experiment(
            {
                "title": "t", "cluster": {"gpus": 2, "bandwidth_gbps": 1.0},
                "workload": [{"name": "bert-large"}, bert], "topology": [{"name": "elect-flat"}],
            },
            registry,
        )  # fmt: skip


GPT = {"name": "gpt", "layers": 1, "hidden": 64, "heads": 4}


@pytest.mark.interconnects
@pytest.mark.parametrize(
    ("section", "workload", "keys", "layout", "keeps"),
    [
        ("plan", GPT, {}, "sequence", False),
        ("plan", {"name": "llama3-8b"}, {}, "sequence", False),
        ("plan", GPT, {"sequence_parallel": False}, "megatron", True),
        ("plan", GPT, {"layout": "auto"}, "auto", True),
        ("plan", GPT, {"layout": "tensor"}, "tensor", True),
        ("plan", GPT, {"keep_gathered": True}, "sequence", True),
        ("strategy", GPT, {}, "auto", True),
        ("strategy", GPT, {"sequence_parallel": True}, "sequence", False),
        ("plan", {"name": "megatron"}, {}, "auto", True),
        ("plan", {"name": "transformer"}, {}, "auto", True),
        ("plan", {"name": "vit-l"}, {}, "auto", True),
    ],
)
def test_sequence_parallelism_is_what_a_plan_of_a_language_model_means(
    section, workload, keys, layout, keeps
):
    """Not what [strategy] means, nor for what the paper trains; resolved tables read the same."""
    tables = {
        "title": "t", "cluster": {"gpus": 8, "bandwidth_gbps": 100}, "workload": workload,
        section: {"mp": 4, "global_batch": 8, **keys}, "topology": {"name": "elect-flat"},
    }  # fmt: skip
    experiment = read_experiment(tables, load())
    (job,) = experiment.jobs
    assert (job.table.layout, job.plan(8).keep_gathered) == (layout, keeps)
    assert read_experiment(resolved_tables(experiment), load()) == experiment
    for other in ("sequence", "tensor"):
        by_default = keys.get("keep_gathered") is None
        assert job.with_layout(other).plan(8).keep_gathered == (other != "sequence" or not by_default)


@pytest.mark.interconnects
@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"sequence_parallel": True, "layout": "megatron"},
            "plan.sequence_parallel = true is layout 'sequence', got layout 'megatron'; leave one out",
        ),
        ({"mp": 8}, "plan.mp must divide the 4 heads with layout 'sequence', got 8; nearest: 4"),
        # Of 14 GPUs: 4 is nearer, and divides them not.
        ({"mp": 7, "gpus": 14}, "plan.mp must divide the 4 heads with layout 'sequence', got 7; nearest: 2"),
    ],
)
def test_what_sequence_parallelism_cannot_be(keys, message):
    keys = {"gpus": 8, **keys}
    gpus = keys.pop("gpus")
    tables = {
        "title": "t", "cluster": {"gpus": gpus, "bandwidth_gbps": 100}, "workload": GPT,
        "plan": {"mp": 4, "global_batch": 56, **keys}, "topology": {"name": "elect-flat"},
    }  # fmt: skip
    with pytest.raises(ConfigError, match=re.escape(message)):
        read_experiment(tables, load())
