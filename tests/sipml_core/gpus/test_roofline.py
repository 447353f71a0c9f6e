"""The roofline: both roofs, saturation, monotony, refusals."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sipml_core.errors import ConfigError
from sipml_core.gpus import A100, H100, H200, V100, op_times_us, step_time_us
from sipml_core.gpus.roofline import BANDWIDTH_EFFICIENCY, COMPUTE_EFFICIENCY
from sipml_core.model.cluster import Cluster
from sipml_core.model.opgraph import Phase
from sipml_core.model.opwork import OpWork
from sipml_core.workloads import Gpt

FAMILY = (V100, A100, H100, H200)
KINDS = ("conv", "matmul", "attention", "norm", "softmax", "elementwise", "optimizer")


def work(*, flops=0.0, memory_bytes=0.0, kind="matmul", precision="mixed"):
    return OpWork(
        op="op",
        kind=kind,
        phase=Phase.FORWARD,
        precision=precision,
        flops=flops,
        memory_bytes=memory_bytes,
        output_elements=1.0,
        samples=1.0,
    )


def gpu(cls, **options):
    return cls(cls.Options(**options))


works = st.builds(
    work,
    flops=st.floats(0, 1e15),
    memory_bytes=st.floats(0, 1e12),
    kind=st.sampled_from(KINDS),
    precision=st.sampled_from(["fp32", "tf32", "mixed"]),
)


def test_compute_bound_by_hand():
    """125 TFLOP/s at one half: 62.5e6 FLOPs in 1 us; a ramp of 3 us besides."""
    v100 = gpu(V100, compute_efficiency={"matmul": 0.5})
    assert v100.op_time_us(work(flops=62.5e6 * 100)) == pytest.approx(103.0)


def test_memory_bound_by_hand():
    """900 GB/s at 80 %: 720 kB in 1 us."""
    v100 = gpu(V100, bandwidth_efficiency={"other": 0.8}, ramp_us=0)
    assert v100.op_time_us(work(memory_bytes=720e3 * 7, kind="softmax")) == pytest.approx(7.0)


@given(work=works, more=st.floats(1, 4))
@pytest.mark.parametrize("cls", FAMILY)
def test_more_work_never_takes_less_time(cls, work, more):
    """Monotone in FLOPs and in bytes."""
    model = gpu(cls)
    time_us = model.op_time_us(work)
    assert model.op_time_us(attrs.evolve(work, flops=work.flops * more)) >= time_us
    assert model.op_time_us(attrs.evolve(work, memory_bytes=work.memory_bytes * more)) >= time_us


@given(work=works)
@pytest.mark.parametrize("cls", FAMILY)
def test_no_op_beats_the_datasheet(cls, work):
    """Not below FLOPs / peak of its units, nor bytes / bandwidth."""
    o = cls.Options()
    peak = {"fp32": o.fp32_tflops, "tf32": o.tf32_tflops, "mixed": o.mixed_tflops}[work.precision]
    time_us = gpu(cls).op_time_us(work)
    assert time_us >= work.flops / (peak * 1e6)
    assert time_us >= work.memory_bytes / (o.bandwidth_gbytes_per_s * 1e3)


def test_half_the_rate_at_the_half_saturation_work():
    """Hockney: the work that takes the ramp's time at the full rate runs at half of it."""
    v100 = gpu(V100, compute_efficiency={"matmul": 0.5}, ramp_us=4)
    half = 62.5e6 * 4
    assert half / v100.op_time_us(work(flops=half)) == pytest.approx(62.5e6 / 2)


def test_small_slices_lose():
    """Cut in k parts, an op's parts together take longer than the whole: below tau nothing is gained."""
    v100 = gpu(V100)
    whole = v100.op_time_us(work(flops=1e10))
    assert 8 * v100.op_time_us(work(flops=1e10 / 8)) == pytest.approx(whole + 7 * 3.0)


def test_only_matrix_kinds_use_tensor_cores():
    """A norm's FLOPs run on the FP32 lanes at any precision."""
    v100 = gpu(V100, compute_efficiency={"vector": 0.5}, ramp_us=0)
    assert v100.op_time_us(work(flops=7.85e6, kind="norm")) == pytest.approx(1.0)


def test_the_v100_runs_tf32_as_fp32():
    """It has no TF32 units."""
    v100 = gpu(V100)
    fp32, tf32 = (v100.op_time_us(work(flops=1e12, precision=name)) for name in ("fp32", "tf32"))
    assert fp32 == tf32


def test_newer_gpus_are_faster():
    """Each generation, at mixed precision, bound by FLOPs or by bytes."""
    for job in (work(flops=1e13), work(memory_bytes=1e10, kind="norm")):
        times = [gpu(cls).op_time_us(job) for cls in FAMILY]
        assert times == sorted(times, reverse=True)


def test_efficiencies_are_fractions():
    """No kernel is assumed to beat its datasheet."""
    tables = [COMPUTE_EFFICIENCY, BANDWIDTH_EFFICIENCY, *(cls.compute for cls in FAMILY)]
    assert all(0 < fraction <= 1 for table in tables for fraction in table.values())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compute_efficiency": {"gemm": 0.5}}, "compute_efficiency.gemm is no kind of kernel; known: conv"),
        ({"bandwidth_efficiency": {"norm": 0.0}}, "bandwidth_efficiency.norm must be above 0 and at most 1"),
        ({"compute_efficiency": {"conv": 1.5}}, "compute_efficiency.conv must be above 0 and at most 1"),
        ({"memory": 0}, "memory must be positive, got 0"),
        ({"fp32_tflops": -1.0}, "fp32_tflops must be positive, got -1"),
        ({"ramp_us": -1.0}, "ramp_us must be at least 0, got -1"),
        ({"bandwidth_gbytes_per_s": float("nan")}, "bandwidth_gbytes_per_s must be positive, got nan"),
    ],
)
def test_impossible_options_are_refused(options, message):
    """The message names the key and the value."""
    with pytest.raises(ConfigError, match=message):
        V100.Options(**options)


def test_memory_may_be_given_with_a_unit():
    """16 GB is 16e9 bytes."""
    assert gpu(V100, memory="16 GB").memory_bytes == 16e9


def test_the_step_is_the_sum_of_what_ops_occupy():
    """As `Cluster` says: the minimum or the kernel, and the launch; phases add up to the whole."""
    graph = Gpt(Gpt.Options(layers=1)).graph(1, "mixed")
    v100 = gpu(V100)
    cluster = Cluster(gpus=1, bandwidth_gbps=1.0, minimum_op_us=7.0, launch_us=2.0)
    bare = op_times_us(graph, v100, launch_us=0.0, minimum_op_us=0.0)
    total = step_time_us(graph, v100, launch_us=2.0, minimum_op_us=7.0)
    assert total == pytest.approx(sum(cluster.duration_us(float(time)) for time in bare))
    phases = [step_time_us(graph, v100, launch_us=2.0, minimum_op_us=7.0, phases=(p,)) for p in Phase]
    assert sum(phases) == pytest.approx(total)


@pytest.mark.parametrize("model", FAMILY)
def test_the_summary_of_a_gpu_says_what_its_datasheet_says(model):
    sheet = model.Options()
    said = f"{sheet.memory / 1e9:g} GB, {sheet.mixed_tflops:g} TFLOP/s mixed, "
    said += f"{sheet.bandwidth_gbytes_per_s:g} GB/s"
    assert said in model.summary
