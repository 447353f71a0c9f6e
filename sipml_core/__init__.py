"""What would this network do to the time my training job takes?

>>> import sipml_core as sipml
>>> result = sipml.run("x.toml", set={"cluster.bandwidth_gbps": "4 Tbps"})  # doctest: +SKIP
>>> result.rows(), result.to_frame()  # doctest: +SKIP

`load` reads an experiment, `run` simulates it, `search` looks for its best plans, `sweep` runs it at many
points, `plan_circuits` plans circuits for one traffic matrix, `plot` draws what happened in a run. What
they need is imported when they are first asked for.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sipml_core.frontdoor import load, plan_circuits, plot, run, search, sweep

__version__ = "0.1.0"
__all__ = ["load", "plan_circuits", "plot", "run", "search", "sweep"]


def __getattr__(name: str) -> Any:
    """The functions of the front door, imported when they are asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sipml_core import frontdoor

    return getattr(frontdoor, name)
