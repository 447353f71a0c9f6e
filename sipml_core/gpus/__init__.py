"""Time and memory of one GPU.

In: the work of an op. Out: its time.
Imports `plugin` and what is below it.
"""

from sipml_core.gpus.datasheets import A100, H100, H200, V100
from sipml_core.gpus.shapedsheets import A100Sxm40, A100Sxm80, B200Sxm, H100Sxm, H200Sxm, V100Sxm2
from sipml_core.gpus.steptime import op_times_us, step_time_us
from sipml_core.gpus.table import TableGpu

GPU_MODELS = (
    V100, A100, H100, H200, V100Sxm2, A100Sxm40, A100Sxm80, H100Sxm, H200Sxm, B200Sxm, TableGpu,
)  # fmt: skip

__all__ = [
    "A100",
    "GPU_MODELS",
    "H100",
    "H200",
    "V100",
    "A100Sxm40",
    "A100Sxm80",
    "B200Sxm",
    "H100Sxm",
    "H200Sxm",
    "TableGpu",
    "V100Sxm2",
    "op_times_us",
    "step_time_us",
]
