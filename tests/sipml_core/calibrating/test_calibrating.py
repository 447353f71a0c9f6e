"""Constants fitted to measurements: what made the measurements is found again, and bad lines are named."""

import pytest

from sipml_core.calibrating import MeasuredCall, fit_library, fit_steps, read_measurements
from sipml_core.calibrating.libraryfit import predicted_us
from sipml_core.communication import Nccl
from sipml_core.errors import ConfigError

HEADER = """# nThread 1 nGpus 4 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20
#
# Using devices
#  Rank  0 Group  0 Pid 1 on host device  0 [0x07] NVIDIA A100
#  Rank  1 Group  0 Pid 1 on host device  1 [0x0f] NVIDIA A100
#  Rank  2 Group  0 Pid 1 on host device  2 [0x47] NVIDIA A100
#  Rank  3 Group  0 Pid 1 on host device  3 [0x4e] NVIDIA A100
#
#                                                       out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
LINE = "     4194304       1048576     float     sum      -1    42.00   99.86  149.80      0    41.50\n"


@pytest.fixture
def output(tmp_path):
    def written(text, name="all_reduce_perf.txt"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return written


def test_output_of_nccl_tests_is_read_as_it_is(output):
    """Ranks are counted, comments and the summary are left out, times are those out of place."""
    tail = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 149.8\n"
    calls, steps = read_measurements(output(HEADER + LINE + tail))
    assert steps == []
    (call,) = calls
    assert (call.kind, call.ranks, call.size_bytes, call.time_us) == ("all_reduce", 4, 4194304.0, 42.0)


def test_the_collective_is_known_by_its_bus_bandwidth_where_no_name_says_it(output):
    """149.8 of 99.86 GB/s is 2 x 3 / 4."""
    (call,) = read_measurements(output(HEADER + LINE, "log.txt"))[0]
    assert call.kind == "all_reduce"


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        (HEADER + LINE.replace("42.00", "fast"), "all_reduce_perf.txt", "line 12: size, time, algbw and"),
        (HEADER + "1024 256 float sum\n", "all_reduce_perf.txt", "line 12: must have size, .* got 4"),
        (HEADER + LINE.replace(" sum", "none"), "log.txt", "line 12: which collective is unclear"),
        (LINE, "all_reduce_perf.txt", "line 1: no ranks are known"),
        (HEADER, "all_reduce_perf.txt", "no line of nccl-tests"),
        ("iteration_ms\n3\n", "steps.csv", "column 'experiment' is missing"),
        ("experiment,iteration_ms,batch\na.toml,3,1\n", "steps.csv", "column 'batch' is neither one of"),
        ("experiment,iteration_ms\na.toml,-3\n", "steps.csv", "line 2: iteration_ms must be a positive"),
    ],
)  # fmt: skip
def test_bad_lines_are_named(output, text, name, message):
    with pytest.raises(ConfigError, match=message):
        read_measurements(output(text, name))


def made_calls(library, kinds, ranks=(2, 4, 8)):
    """What the library itself takes, at 300 GB/s."""
    for kind in kinds:
        for count in ranks:
            for power in range(8, 30, 3):
                call = MeasuredCall(kind=kind, ranks=count, size_bytes=2.0**power, time_us=1.0, where="")
                time_us = predicted_us(library, call, 2400.0, 1, False)
                yield MeasuredCall(kind=kind, ranks=count, size_bytes=2.0**power, time_us=time_us, where="")


def test_constants_that_made_the_times_are_found():
    """Start-up of 9 and 40 us where the defaults are 5.2 and 8.4, 0.9 of the links where they are 0.71."""
    library = Nccl(Nccl.Options(ll_base_us=9.0, reduce_base_us=40.0, ring_efficiency=0.9))
    fit = fit_library(list(made_calls(library, ["all_reduce"])), gbps=2400.0)
    assert max(map(abs, fit.residuals)) < 0.05
    assert fit.options["ring_efficiency"] == pytest.approx(0.9, rel=0.05)
    assert fit.options["ll_base_us"] == pytest.approx(9.0, rel=0.1)


def test_only_constants_that_the_calls_tell_of_are_fitted():
    library = Nccl(Nccl.Options())
    fit = fit_library(list(made_calls(library, ["all_to_all"], ranks=(4,))), gbps=2400.0)
    assert set(fit.options) == {"send_base_us", "send_efficiency"}
    fit = fit_library(list(made_calls(library, ["all_reduce"], ranks=(4,))), gbps=2400.0)
    assert set(fit.options) == {"ll_base_us", "reduce_hop_us", "ring_efficiency"}


EXPERIMENT = """
title = "mine"
[cluster]
gpus = 1
bandwidth_gbps = 100
[gpu]
name = "a100-80gb"
compute_efficiency = { matmul = 0.5 }
[workload]
name = "gpt"
layers = 1
hidden = 2048
heads = 16
sequence = 128
vocabulary = 1000
plan = { mp = 1, global_batch = 8 }
[topology]
name = "elect-flat"
"""


@pytest.mark.interconnects
def test_a_step_tells_how_fast_products_are(registry, tmp_path):
    """Measured as simulated with 0.5 of the peak: 0.5 is found, from 0.6."""
    from sipml_core.calibrating.stepfit import step_us

    (tmp_path / "mine.toml").write_text(EXPERIMENT)
    (tmp_path / "steps.csv").write_text("experiment,iteration_ms\nmine.toml,1\n")
    _, (step,) = read_measurements(tmp_path / "steps.csv")
    time_us = step_us(step, {}, registry, None)
    (tmp_path / "steps.csv").write_text(f"experiment,iteration_ms\nmine.toml,{time_us / 1e3}\n")
    fit = fit_steps(read_measurements(tmp_path / "steps.csv")[1], registry)
    assert fit.matmul == pytest.approx(0.5, rel=0.04)
    assert max(map(abs, fit.residuals)) < 0.03


def test_an_experiment_that_is_not_there_is_named_with_its_line(registry, tmp_path):
    (tmp_path / "steps.csv").write_text("experiment,iteration_ms,cluster.gpus\nmine.toml,1,0\n")
    (tmp_path / "mine.toml").write_text(EXPERIMENT)
    with pytest.raises(ConfigError, match=r"steps.csv line 2: .*cluster.gpus"):
        fit_steps(read_measurements(tmp_path / "steps.csv")[1], registry)
