"""Circuits of other networks as parts of a larger one, by the name of the network that has them."""

from __future__ import annotations

from typing import Any

import attrs

from sipml_core.errors import ConfigError
from sipml_core.fields import at_least, format_us, option, parse_us, positive
from sipml_core.model import CircuitControl, Cluster
from sipml_core.plugin import installed


def circuits_of(topology: str, gpus: int, bandwidth_gbps: float, **options: Any) -> CircuitControl:
    """Return the circuits that an installed topology gives so many GPUs; options that are None are its own.

    >>> circuits_of("sip-ocs", 4, 800.0, switches=8, latency_us=None).circuit_gbps
    100.0
    """
    cls = installed("topology", topology)
    given = {name: value for name, value in options.items() if value is not None}
    fabric = cls(cls.Options(**given)).build(Cluster(gpus=gpus, bandwidth_gbps=bandwidth_gbps))
    if fabric.circuits is None:
        raise ConfigError(f"topology {topology!r} has no circuits")
    return fabric.circuits  # type: ignore[no-any-return]


def optional_us(doc: str, validator: Any = positive) -> float | None:
    """Return an option in microseconds that may be left out."""
    return option(  # type: ignore[no-any-return]
        None,
        doc=doc,
        unit="us",
        converter=attrs.converters.optional(parse_us),
        validator=attrs.validators.optional(validator),
    )


def interval() -> float | None:
    """Return the option for the time between plans of optical switches."""
    return optional_us("time between plans; left out: one plan, made before the job starts")


def reconfiguration() -> float | None:
    """Return the option for how long a changed circuit of an optical switch is dark."""
    return optional_us("time a changed circuit is dark; left out: as of sip-ocs", at_least(0))


def check_times(
    interval_us: float | None, reconfiguration_us: float | None, default_us: float, *, relay: bool = False
) -> None:
    """Refuse times that have no effect, or with which changed circuits never carry anything.

    Parameters
    ----------
    default_us
        What `reconfiguration_us` is where it is left out. [us]
    relay
        Whether pairs without a circuit are to be relayed.
    """
    if interval_us is None:
        if reconfiguration_us is not None:
            raise ConfigError(
                "reconfiguration_us has no effect on circuits that are set once; leave it out, or set "
                "interval_us"
            )
        return
    if relay:
        raise ConfigError("relay is for circuits that are set once; leave out interval_us, or relay")
    dark_us = default_us if reconfiguration_us is None else reconfiguration_us
    if interval_us <= dark_us:
        raise ConfigError(
            f"interval_us must exceed reconfiguration_us ({format_us(dark_us)}), or changed circuits never "
            f"carry anything; got {format_us(interval_us)}"
        )
