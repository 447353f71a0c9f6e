from sipml_spec_sheet import SpecSheet

from sipml_core.model import OpWork, Phase
from sipml_core.testing import GpuModelConformance

A100 = {"teraflops": 312.0, "memory_gbytes_per_s": 2039.0, "memory": "80 GB"}


class TestConformance(GpuModelConformance):
    gpu_model = SpecSheet
    options = A100


def test_the_longer_of_arithmetic_and_memory_traffic_counts():
    """312 TFLOP/s at 50 %: 156 MFLOP take 1 us; 2039 GB/s at 50 %: 2.039 MB take 2 us."""
    gpu = SpecSheet(SpecSheet.Options(**A100))
    shared = {"op": "o", "kind": "matmul", "phase": Phase.FORWARD, "precision": "mixed", "samples": 1}
    work = OpWork(flops=156e6, memory_bytes=2.039e6, output_elements=1e6, **shared)
    assert round(gpu.op_time_us(work), 9) == 2.0
    assert round(gpu.op_time_us(OpWork(flops=156e6, memory_bytes=0, output_elements=1e6, **shared)), 9) == 1.0
