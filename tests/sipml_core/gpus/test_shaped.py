"""Matrix products by shape: tiles, waves, precisions, and the laws of every GPU model."""

from itertools import pairwise

import attrs
import pytest

from sipml_core.errors import ConfigError
from sipml_core.gpus import A100, A100Sxm40, A100Sxm80, B200Sxm, H100Sxm, H200Sxm, V100Sxm2
from sipml_core.gpus.shaped import wave_efficiency
from sipml_core.model import MatrixProduct, OpWork, Phase
from sipml_core.testing import GpuModelConformance

SHAPED = (V100Sxm2, A100Sxm40, A100Sxm80, H100Sxm, H200Sxm, B200Sxm)


class TestA100Sxm80(GpuModelConformance):
    gpu_model = A100Sxm80


def work(batch=1, m=8192, n=8192, k=8192, precision="mixed", kind="matmul", products=True):
    product = MatrixProduct(batch, m, n, k)
    return OpWork(
        op="op", kind=kind, phase=Phase.FORWARD, precision=precision, flops=product.flops, memory_bytes=1.0,
        output_elements=batch * m * n, samples=1, products=(product,) if products else (),
    )  # fmt: skip


#: Of k steps of a tile, the part that is not spent to begin and to end it.
def begun(k):
    return k / (k + 192)


def test_full_waves_of_full_tiles_reach_the_largest_rate():
    """108 multiprocessors, 256 x 128: 12 x 9 tiles are one wave; 192 steps begin and end a tile."""
    assert wave_efficiency(MatrixProduct(1, 12 * 256, 9 * 128, 4096), 108) == pytest.approx(4096 / 4288)


def test_one_tile_more_costs_a_wave():
    """109 tiles of the largest kind take two waves of 108; smaller tiles waste less."""
    full = wave_efficiency(MatrixProduct(1, 108 * 256, 128, 4096), 108)
    more = wave_efficiency(MatrixProduct(1, 109 * 256, 128, 4096), 108)
    assert full == pytest.approx(begun(4096))
    assert more == pytest.approx(max(109 / 216, 218 / 324 * 0.85, 436 / 540 * 0.65) * begun(4096))


def test_a_row_more_than_a_tile_costs_a_tile():
    """One multiprocessor, tiles of 64 x 64 at best: 65 rows take two of them, at 0.45 of the rate."""
    assert wave_efficiency(MatrixProduct(1, 65, 64, 64), 1) == pytest.approx(65 / 128 * 0.65 * begun(64))


def test_a_long_contraction_is_divided_where_tiles_are_few():
    """One tile on 8 multiprocessors in 8 parts, or two smaller ones in 4; k of 256 is too short."""
    assert wave_efficiency(MatrixProduct(1, 256, 128, 2048), 8) == pytest.approx(
        max(begun(256), 0.85 * begun(512))
    )
    assert wave_efficiency(MatrixProduct(1, 256, 128, 256), 8) < 0.5 * begun(256)


@pytest.mark.parametrize("gpu", SHAPED)
def test_no_product_is_faster_than_the_peak(gpu):
    model = gpu(gpu.Options())
    for m in (1, 63, 64, 129, 1024, 8192):
        for k in (64, 4096):
            asked = work(m=m, k=k)
            assert model.compute_us(asked) >= asked.flops / (model.options.mixed_tflops * 1e6)


@pytest.mark.parametrize("gpu", SHAPED)
def test_time_grows_with_each_dimension(gpu):
    model = gpu(gpu.Options())
    shape = {"batch": 2, "m": 300, "n": 500, "k": 700}
    for changed in shape:
        times = [model.compute_us(work(**{**shape, changed: size})) for size in (2, 3, 100, 129, 1000)]
        for less, more in pairwise(times):
            assert more >= less * (1 - 1e-9)
        assert times[-1] > times[0]


def test_large_products_reach_what_was_fitted():
    """0.78 of 312 TFLOP/s, where tiles and waves are all but full."""
    asked = work(m=16384, n=16384, k=8192)
    tflops = asked.flops / A100Sxm80(A100Sxm80.Options()).compute_us(asked) / 1e6
    assert 0.74 * 312 < tflops <= 0.78 * 312


def test_a_product_of_unknown_shape_goes_by_the_efficiency_of_its_kind():
    asked = work(kind="attention", products=False)
    model = A100Sxm80(A100Sxm80.Options())
    assert model.compute_us(asked) == pytest.approx(asked.flops / (312e6 * 0.45))


def test_fp8_is_for_products_of_weights_alone():
    """4500 TFLOP/s where BF16 has 2250; attention stays in BF16."""
    model = B200Sxm(B200Sxm.Options())
    mixed, fp8 = (model.compute_us(work(precision=name)) for name in ("mixed", "fp8"))
    assert mixed == pytest.approx(2 * fp8)
    mixed, fp8 = (
        model.compute_us(work(precision=name, kind="attention", products=False)) for name in ("mixed", "fp8")
    )
    assert mixed == fp8


def test_what_a_product_in_fp8_reads_is_cast_first():
    """8192 x 8192 elements, 2 bytes read and 2 written at 0.85 of 7700 GB/s; half when going backward."""
    model = B200Sxm(B200Sxm.Options(bandwidth_efficiency={"other": 0.85}))
    asked = work(precision="fp8")
    cast_us = 4 * 8192**2 / (7700e3 * 0.85)
    assert model.op_time_us(asked) == pytest.approx(model.compute_us(asked) + 3.0 + cast_us)
    backward = attrs.evolve(asked, phase=Phase.BACKWARD)
    assert model.op_time_us(asked) - model.op_time_us(backward) == pytest.approx(cast_us / 2)
    assert model.op_time_us(work()) == pytest.approx(model.compute_us(work()) + 3.0)


def test_eager_kernels_pass_over_scores_several_times():
    """Softmax of 4 bytes an element takes 36, its gradient 40 where one kernel moves 6; products the same."""
    fused, eager = (A100Sxm80(A100Sxm80.Options(kernels=kernels)) for kernels in ("fused", "eager"))
    scores = attrs.evolve(work(kind="softmax", products=False), flops=0.0, memory_bytes=4e9)
    assert eager.memory_us(scores) == pytest.approx(9 * fused.memory_us(scores))
    assert fused.memory_us(scores) == pytest.approx(4e9 / (2039e3 * 0.85))
    gradient = attrs.evolve(scores, phase=Phase.BACKWARD)
    assert eager.memory_us(gradient) == pytest.approx(40 / 6 * fused.memory_us(gradient))
    assert eager.op_time_us(work()) == fused.op_time_us(work())


@pytest.mark.parametrize("gpu", [A100, A100Sxm80])
def test_a_gpu_without_fp8_says_so(gpu):
    with pytest.raises(ConfigError, match=r"gpu\.precision: .* has no 'fp8'; it has fp32, tf32, mixed"):
        gpu(gpu.Options()).op_time_us(work(precision="fp8"))


def test_tf32_of_matrices_is_no_longer_that_of_convolutions():
    """0.78 of 156 TFLOP/s for products; 0.25 for what is no product."""
    model = A100Sxm80(A100Sxm80.Options())
    asked = work(m=16384, n=16384, precision="tf32")
    assert asked.flops / model.compute_us(asked) / 156e6 == pytest.approx(0.78, rel=0.04)
    other = attrs.evolve(asked, kind="conv", products=())
    assert other.flops / model.compute_us(other) / 156e6 == pytest.approx(0.25)


def test_memories_differ_where_datasheets_do():
    assert A100Sxm40(A100Sxm40.Options()).memory_bytes == 40e9
    assert H200Sxm(H200Sxm.Options()).memory_bytes == 141e9
    assert H200Sxm.compute == H100Sxm.compute
