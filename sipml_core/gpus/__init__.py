"""Time and memory of one GPU.

In: the work of an op. Out: its time.
Imports `plugin` and what is below it.
"""

from sipml_core.gpus.datasheets import A100, H100, H200, V100
from sipml_core.gpus.steptime import op_times_us, step_time_us
from sipml_core.gpus.table import TableGpu

GPU_MODELS = (V100, A100, H100, H200, TableGpu)

__all__ = ["A100", "GPU_MODELS", "H100", "H200", "V100", "TableGpu", "op_times_us", "step_time_us"]
