"""Measured rows: every one is a case or says why not; formulas; errors of a few that are quick."""

import pytest

from sipml_core.executing import InThisProcess
from sipml_core.store import ResultStore
from sipml_core.validating import ErrorSummary, measured_rows, predict, predictions
from sipml_core.validating.footprints import footprint, footprint_rows
from sipml_core.validating.trainingrows import model_flops, sc21_flops


@pytest.fixture(scope="module")
def rows():
    return measured_rows()


@pytest.fixture(scope="module")
def by_name(rows):
    return {row.name: row for row in rows}


def test_every_row_of_the_data_is_there_once(rows):
    """127 collectives, 12 bus bandwidths, 708 + 59 of vTrain, 100 less the 4 bus bandwidths of the table."""
    assert len(rows) == len({row.name for row in rows}) == 127 + 12 + 708 + 59 + 96


def test_a_row_can_be_run_or_says_why_not(rows):
    for row in rows:
        assert bool(row.reason) != (row.tables is not None and row.measured_us > 0) or row.reason
        assert row.source


def test_rows_say_how_ops_are_cut(rows):
    """What a plan means that names no layout is no part of what was published."""
    plans = [row.tables["plan"] for row in rows if row.tables and "plan" in row.tables]
    assert len(plans) > 500
    assert all(plan["layout"] in ("tensor", "megatron") for plan in plans)


def test_fitted_rows_are_marked(rows):
    """Every second of those that constants come from, and no other."""
    fitted = {row.family for row in rows if row.fitted}
    assert fitted == {
        "NCCL on H100", "bus bandwidths", "vTrain, one server", "DLPerf, V100", "ResNet-50",
        "llm-foundry MPT", "SimuMax, B200",
    }  # fmt: skip
    assert sum(row.fitted for row in rows if row.family == "vTrain, one server") == 354


def test_throughputs_become_times(by_name):
    """DLPerf: 2 sequences at 4.31 a second. NeMo: 128 x 4096 tokens of 8 GPUs at 16 847 a second each."""
    assert by_name["dlperf/DP_1x1x1_2_1536x16/Megatron-LM"].measured_us == pytest.approx(2e6 / 4.31)
    nemo = by_name["nemo2407/LLAMA2-7B/n8"]
    assert nemo.measured_us == pytest.approx(128 * 4096 / 8 / 16847 * 1e6)


def test_tflops_become_times_by_the_formula_of_the_source(by_name):
    """SC'21: 96 B s L h^2 (1 + s / 6h + V / 16Lh); for 1.7B at 137 TFLOP/s on 32 GPUs 3.53 s."""
    row = {"global_batch": "512", "seq": "2048", "layers": "24", "hidden": "2304", "vocab": "51200"}
    by_hand = 96 * 512 * 2048 * 24 * 2304**2 * (1 + 2048 / (6 * 2304) + 51200 / (16 * 24 * 2304))
    assert sc21_flops(row) == pytest.approx(by_hand)
    assert by_name["megatron-sc21/1.7B"].measured_us == pytest.approx(by_hand / (32 * 137e6))
    assert model_flops(row) < sc21_flops(row)


def test_a_bus_bandwidth_becomes_a_time(by_name):
    """8 A100: 1 MiB at 18 GB/s, 2 x 7 / 8 of it for each."""
    row = by_name["busbw/a100/8/1048576/auto"]
    assert row.measured_us == pytest.approx(1.75 * 2**20 / 18e3)


@pytest.mark.interconnects
@pytest.mark.parametrize(
    ("name", "largest"),
    [
        ("dlperf/DP_1x1x1_2_1536x16/Megatron-LM", 0.15), ("resnet50/v100-16GB/fp32/n1", 0.10),
        ("busbw/h200/8/4294967296/in-switch", 0.10), ("megatron-sc21/3.6B", 0.20),
        ("vtrain_single/1", 0.20), ("mpt/a100_80gb/7b/n8/mbs6", 0.20),
    ],
)  # fmt: skip
def test_some_rows_are_predicted(registry, by_name, name, largest):
    """As far as docs/validation.md says, with room for constants that are fitted anew."""
    found = predict(by_name[name], registry)
    assert found.reason == ""
    assert abs(found.error) < largest


@pytest.mark.interconnects
def test_a_second_run_takes_what_the_store_has(tmp_path, by_name, monkeypatch):
    """The same answer without a simulation; a row that cannot be run is asked again."""
    rows = [by_name["nccl-h100/all_gather/2/512"], by_name["mlperf51/llama31_405b/tyche_512"]]
    first = predictions(rows, InThisProcess(), ResultStore(tmp_path))
    monkeypatch.setattr("sipml_core.validating.suite._collective_us", None)
    assert predictions(rows, InThisProcess(), ResultStore(tmp_path)) == first
    assert first[0].predicted_us > 0
    assert first[1].reason


@pytest.mark.interconnects
@pytest.mark.parametrize(
    "name",
    [
        "simumax-b200/70b/tp8",
        pytest.param("simumax-b200/405b/cp8/32k", marks=pytest.mark.slow),
        "zero/7.5b/gradients",
    ],
)
def test_memory_is_within_a_tenth_of_what_was_published(registry, name):
    """docs/validation.md has all."""
    row, counted, published_bytes = next(each for each in footprint_rows() if each[0].name == name)
    assert abs(footprint(row, counted, published_bytes, registry).error) < 0.10


def test_a_row_that_cannot_be_run_is_kept_with_its_reason(registry, by_name):
    found = predict(by_name["mlperf51/llama31_405b/tyche_512"], registry)
    assert (found.predicted_us, found.error) == (None, None)
    assert found.reason.startswith("a time to train")
    assert ErrorSummary.of([found]) is None
