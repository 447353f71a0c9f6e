"""Bytes per element of what a training step keeps and moves."""

from __future__ import annotations

from sipml_core.errors import ConfigError, unknown
from sipml_core.fields import frozen


@frozen(kw_only=True)
class Precision:
    """Bytes per element, by role.

    Optimizer state counts everything that lives beside the weights and gradients of the
    working precision: Adam keeps two fp32 moments (8 bytes), and mixed precision an fp32
    master copy besides (12 bytes) (Rajbhandari et al. 2020, "ZeRO", section 3.1).
    """

    name: str
    activation_bytes: int
    parameter_bytes: int
    gradient_bytes: int
    optimizer_bytes: int


#: Precisions by name.
PRECISIONS = {
    "fp32": Precision(
        name="fp32", activation_bytes=4, parameter_bytes=4, gradient_bytes=4, optimizer_bytes=8
    ),
    "tf32": Precision(
        name="tf32", activation_bytes=4, parameter_bytes=4, gradient_bytes=4, optimizer_bytes=8
    ),
    "mixed": Precision(
        name="mixed", activation_bytes=2, parameter_bytes=2, gradient_bytes=2, optimizer_bytes=12
    ),
    # Matrix products alone are done in FP8; what is kept and sent has the bytes of mixed precision.
    "fp8": Precision(name="fp8", activation_bytes=2, parameter_bytes=2, gradient_bytes=2, optimizer_bytes=12),
}


def precision(name: str) -> Precision:
    """The precision of that name; `ConfigError` names the nearest if there is none."""
    try:
        return PRECISIONS[name]
    except KeyError:
        raise ConfigError(unknown("precision", name, PRECISIONS)) from None
