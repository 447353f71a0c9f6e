"""Time and memory of one GPU.

In: the work of an op. Out: its time.
Imports `plugin` and what is below it; each file only when something of it is asked for.
"""

from typing import TYPE_CHECKING

from sipml_core.lazy import files_when_asked

if TYPE_CHECKING:
    from sipml_core.gpus.datasheets import A100, H100, H200, V100
    from sipml_core.gpus.shapedsheets import A100Sxm40, A100Sxm80, B200Sxm, H100Sxm, H200Sxm, V100Sxm2
    from sipml_core.gpus.steptime import op_times_us, step_time_us
    from sipml_core.gpus.table import TableGpu

__getattr__ = files_when_asked(
    __name__,
    {
        "datasheets": ("A100", "H100", "H200", "V100"),
        "shapedsheets": ("A100Sxm40", "A100Sxm80", "B200Sxm", "H100Sxm", "H200Sxm", "V100Sxm2"),
        "steptime": ("op_times_us", "step_time_us"),
        "table": ("TableGpu",),
    },
)

__all__ = [
    "A100",
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
