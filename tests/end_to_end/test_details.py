"""Details of whole runs: what was folded is filled out as in a run of all GPUs; accounts add up."""

import itertools

import numpy as np
import pytest

from sipml_core.cases import run_experiment
from sipml_core.details import CaseDetails, Selection, critical_path, decoded, trace_bytes
from sipml_core.errors import ConfigError
from sipml_core.experiment import open_experiment

EXPERIMENT = """
title = "details"

[cluster]
gpus = 8
bandwidth_gbps = "200 Gbps"

[[workload]]
name = "gpt"
layers = 2
hidden = 128
heads = 4
sequence = 32
vocabulary = 500
strategy = { mp = 2, pp = 2, dp = 2, global_batch = 8, micro_batch = 2 }

[[topology]]
name = "elect-flat"
[[topology]]
name = "elect-cluster"
server_gpus = 4
[[topology]]
name = "sip-ocs"
"""
RING = EXPERIMENT.split("[[topology]]")[0] + '[[topology]]\nname = "sip-ring"\ninterval_us = 40\n'


@pytest.fixture(scope="module")
def run(registry, tmp_path_factory):
    """run(text, ...): the result with details, values changed by path."""

    def run_with(text, **changes):
        path = tmp_path_factory.mktemp("experiment") / "x.toml"
        path.write_text(text)
        changed = {name.replace("__", "."): value for name, value in changes.items()}
        return run_experiment(open_experiment(path, registry, set=changed), details=True)

    return run_with


@pytest.fixture(scope="module")
def folded(run):
    return run(EXPERIMENT)


@pytest.fixture(scope="module")
def whole(run):
    return run(EXPERIMENT, engine__fold="never")


@pytest.fixture(scope="module")
def ring(run):
    return run(RING)


def sorted_columns(table, names):
    """The columns of a table whose rows are in order, of times to a thousandth of a nanosecond."""
    keys = [
        table[name].astype(str) if table[name].dtype == object else np.round(table[name], 6) for name in names
    ]
    order = np.lexsort(keys[::-1])
    return {name: table[name][order] for name in names}


@pytest.mark.parametrize("topology", ["elect-flat", "elect-cluster", "sip-ocs"])
def test_a_folded_run_is_filled_out_as_the_whole_run_has_it(folded, whole, topology):
    """Every transfer of every GPU with its times, every GPU, every link and every pair."""
    part, full = (result.details(topology=topology) for result in (folded, whole))
    assert part.record.images is not None
    assert full.record.images is None
    for table, names in {
        "gpus": ("gpu", "compute_us", "exposed_us", "waits_tensor_us", "waits_gradient_us", "received_bytes"),
        "traffic": ("src", "dst", "kind", "bytes", "transfers"),
        "flows": ("src", "dst", "kind", "bytes", "joined_us", "head_us", "left_us", "arrived_us"),
        "links": ("link", "bytes", "gradient_bytes", "busy_us", "gbps"),
    }.items():
        mine, theirs = (sorted_columns(getattr(each, table)(), names) for each in (part, full))
        for name in names:
            assert len(mine[name]) == len(theirs[name]) > 0
            if mine[name].dtype == object:
                assert mine[name].tolist() == theirs[name].tolist(), (table, name)
            else:
                np.testing.assert_allclose(mine[name], theirs[name], rtol=1e-9, atol=1e-6, err_msg=name)
    assert not part.flows()["simulated"].all()
    assert full.flows()["simulated"].all()


@pytest.mark.parametrize("case", ["elect-flat", "sip-ocs", "sip-ring"])
def test_accounts_and_bytes_add_up(folded, ring, case):
    details = (ring if case == "sip-ring" else folded).details(topology=case)
    row = (ring if case == "sip-ring" else folded).case("gpt", case)
    gpus, flows, traffic = details.gpus(), details.flows(), details.traffic()
    waits_us = sum(column for name, column in gpus.items() if name.startswith("waits_"))
    assert waits_us == pytest.approx(gpus["exposed_us"] + gpus["dark_us"], abs=1e-6)
    assert gpus["compute_us"].mean() == pytest.approx(row.compute_us)
    assert gpus["exposed_us"].mean() == pytest.approx(row.exposed_us)
    for total in (
        flows["bytes"].sum(),
        traffic["bytes"].sum(),
        gpus["sent_bytes"].sum(),
        gpus["received_bytes"].sum(),
    ):
        assert total == pytest.approx(row.network_bytes)
    assert {"tensor", "pipeline", "gradient"} == set(traffic["kind"])
    gradient = traffic["bytes"][traffic["kind"] == "gradient"].sum()
    assert gradient == pytest.approx(row.gradient_bytes)
    steps = critical_path(details.record)
    assert sum(step.span_us for step in steps) == pytest.approx(details.record.timeline.total_us)
    assert all(a.until_us == pytest.approx(b.since_us) for a, b in itertools.pairwise(steps))


def test_every_decision_on_circuits_is_there_with_what_it_changed(ring):
    details, row = ring.details(), ring.cases[0]
    table = details.circuits()
    assert len(set(table["decision"])) == row.decisions > 1
    changed = [k for k, src in enumerate(table["src"]) if src != "" and table["at_us"][k] > 0]
    assert changed
    assert all(
        table["dark_us"][k] == 25.0 or table["before_gbps"][k] >= table["after_gbps"][k] for k in changed
    )
    for (src, dst), spans in details.circuit_spans().items():
        assert src != dst
        assert all(a.until_us <= b.since_us for a, b in itertools.pairwise(spans))
        assert all(span.since_us < span.until_us for span in spans)


def test_passes_of_a_stage_come_in_the_order_of_the_schedule(whole):
    """1F1B over two stages and two micro-batches: F0 F1 B0 B1 on the first, F0 B0 F1 B1 on the last."""
    passes = whole.details(topology="elect-flat").passes()
    for stage, order in ((0, "F0 F1 B0 B1 U"), (1, "F0 B0 F1 B1 U")):
        mine = (passes["stage"] == stage) & (passes["replica"] == 1)
        assert " ".join(passes["name"][mine]) == order


def test_details_are_of_one_case(folded):
    with pytest.raises(
        ConfigError, match="details are of one case; name it by workload and topology, of: gpt on elect"
    ):
        folded.details()
    with pytest.raises(ConfigError, match="of: gpt on elect-flat; gpt on elect-cluster; gpt on sip-ocs"):
        folded.details(topology="nowhere")


def test_a_run_without_details_says_how_to_get_them(registry, tmp_path):
    path = tmp_path / "x.toml"
    path.write_text(EXPERIMENT)
    plain = run_experiment(open_experiment(path, registry))
    assert plain.recorded == (None, None, None)
    with pytest.raises(ConfigError, match="run again with details=True, or run --details"):
        plain.details(topology="elect-flat")


def test_images_of_a_selection_are_only_those_of_its_gpus(folded):
    details = folded.details(topology="elect-flat")
    assert isinstance(details, CaseDetails)
    last = details.selected(Selection(gpus=(7,))).flows()
    assert set(last["src"]) | set(last["dst"]) > {7}
    assert ((last["src"] == 7) | (last["dst"] == 7)).all()
    assert np.isfinite(last["arrived_us"]).all()


def test_a_trace_of_a_folded_run_has_every_gpu_once_and_says_which_it_does_as(folded):
    packets = list(decoded(trace_bytes(folded.details(topology="elect-flat"))))
    tracks = [packet for packet in packets if packet.what == "track"]
    roots = {packet.track: packet.name for packet in tracks if packet.name.startswith("GPU ")}
    assert len(roots) == 8
    assert sum(", as GPU " in name for name in roots.values()) == 4
    children = [(roots[packet.parent], packet.name) for packet in tracks if packet.parent in roots]
    assert len(children) == len(set(children))
    for gpu in ("GPU 0 ", "GPU 4 "):  # the second does as the first
        assert {name for root, name in children if root.startswith(gpu)} == {"compute", "sends", "receives"}
    begins = sum(packet.what == "begin" for packet in packets)
    assert begins == sum(packet.what == "end" for packet in packets) > 100
