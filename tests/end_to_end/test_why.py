"""What would shorten a run, by simulation: what is simulated is what the change would be."""

import attrs
import pytest
from click.testing import CliRunner

from sipml_core.cases import Clock, Reuse, case_of, compile_case, gains, run_experiment, simulate_case
from sipml_core.cases.remedies import balanced_gpus, faster_gpus, faster_links, never_dark
from sipml_core.cli.main import main
from sipml_core.errors import ConfigError
from sipml_core.experiment import open_experiment
from sipml_core.report import Why

EXPERIMENT = """
title = "why"
[cluster]
gpus = 8
bandwidth_gbps = "100 Gbps"
[[workload]]
name = "gpt"
layers = 2
hidden = 128
heads = 4
sequence = 32
vocabulary = 500
strategy = { mp = 1, dp = 8, global_batch = 16 }
[[topology]]
name = "elect-flat"
[[topology]]
name = "sip-ring"
interval_us = 40
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("why") / "x.toml"
    path.write_text(EXPERIMENT)
    return path


@pytest.fixture(scope="module")
def opened(file, registry):
    return open_experiment(file, registry)


@pytest.fixture(scope="module")
def result(opened):
    return run_experiment(opened, details=True)


def why_of(result, topology):
    return Why.of(result.details(topology=topology), result.case("gpt", topology))


@pytest.fixture
def compiled(opened, result):
    """compiled(topology): the case of a row, to be changed."""

    def of(topology):
        row = result.case("gpt", topology)
        (found,) = [
            each
            for each in compile_case(case_of(opened, row), Reuse())
            if (each.plan.exchange, each.plan.all_reduce) == (row.exchange, row.all_reduce)
        ]
        return found

    return of


def time_of(compiled):
    return simulate_case(compiled, Clock()).row.measured_us


def test_twice_the_bandwidth_is_what_a_cluster_of_twice_the_bandwidth_has(file, registry, compiled):
    """Pure data parallelism has the same tasks whatever the network."""
    faster = open_experiment(file, registry, set={"cluster.bandwidth_gbps": "200 Gbps"})
    expected = run_experiment(faster).case("gpt", "elect-flat").iteration_us
    assert time_of(faster_links(None, 2.0)(compiled("elect-flat"))) == pytest.approx(expected, rel=1e-9)
    assert time_of(compiled("elect-flat")) > 1.05 * expected


def test_changes_change_what_they_say(compiled):
    case = compiled("elect-flat")
    half = faster_gpus(case)
    assert half.tasks.duration_us.tolist() == (case.tasks.duration_us / 2).tolist()
    even = balanced_gpus(case)
    real = even.tasks.gpu >= 0
    assert even.tasks.duration_us[real].sum() == pytest.approx(case.tasks.duration_us[real].sum())
    free = faster_links(None, 1e6)(case)
    row = simulate_case(free, Clock()).row
    assert row.measured_us == pytest.approx(row.compute_max_us, rel=1e-3)


def test_circuits_that_are_never_dark_leave_no_dark_time(compiled):
    ring = compiled("sip-ring")
    assert simulate_case(compiled("sip-ring"), Clock()).row.dark_capacity_us > 0
    assert simulate_case(never_dark(ring), Clock()).row.dark_capacity_us == 0


@pytest.mark.parametrize("topology", ["elect-flat", "sip-ring"])
def test_gains_are_those_of_the_best_first_and_name_the_links_of_the_path(opened, result, topology):
    why = why_of(result, topology)
    found = gains(case_of(opened, why.row), why.row, why.held_links())
    assert [gain.saved for gain in found] == sorted((gain.saved for gain in found), reverse=True)
    names = {gain.name: gain for gain in found}
    first = why.held_links()[0][0]
    assert f"twice the bandwidth of {first}" in names
    like = [name for name in names if name.startswith(f"twice the bandwidth of {first} and the ")]
    # On the switch one group stands for all, and its one port for all ports.
    assert [names[name].saved > 0.01 for name in like] == ([True] if topology == "sip-ring" else [])
    assert ("no reconfiguration: circuits are set in no time" in names) == (topology == "sip-ring")
    for gain in found:
        assert gain.saved == pytest.approx(1 - gain.iteration_us / why.row.iteration_us)
    assert names["a network without any limit"].iteration_us >= why.row.compute_max_us * (1 - 1e-9)


def test_parts_of_the_path_add_up_and_the_sentence_names_the_largest(result):
    why = why_of(result, "sip-ring")
    assert sum(part.span_us for part in why.parts()) == pytest.approx(why.total_us)
    spans = [part.span_us for part in why.parts()]
    assert spans == sorted(spans, reverse=True)
    worst = next(part for part in why.parts() if part.what != "compute")
    assert f"{worst.span_us / why.total_us:.0%}" in why.sentence()
    assert worst.where in why.sentence()


def test_a_row_of_another_experiment_is_refused(opened, result):
    row = attrs.evolve(result.cases[0], mp=4)
    with pytest.raises(ConfigError, match="the experiment has no case gpt on elect-flat with mp=4"):
        case_of(opened, row)


def test_the_command_explains_a_file_and_the_folder_of_its_result(file, tmp_path):
    def call(*arguments):
        return CliRunner().invoke(main, [str(argument) for argument in arguments])

    assert call("run", file, "--out", tmp_path).exit_code == 0
    of_folder = call("explain", tmp_path, "--topology", "elect-flat", "--steps", "2")
    assert of_folder.exit_code == 0, of_folder.output
    assert "what would shorten it, each simulated" in of_folder.stdout
    assert "its 2 longest steps, in order" in of_folder.stdout
    assert of_folder.stdout.startswith("elect-flat takes ")
    again = call("explain", file, "--time", "--topology", "elect-flat", "--steps", "2")
    assert again.stdout == of_folder.stdout
    refused = call("explain", tmp_path, "--topology", "moon")
    assert refused.exit_code == 2
    assert "no case of moon that ran and whose links are shared; there is: " in refused.stderr
