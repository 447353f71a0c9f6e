"""The topology `sip-ring`."""

from __future__ import annotations

import math

import attrs
import numpy as np

from sipml_core.errors import ConfigError
from sipml_core.fields import at_least, between, format_us, one_of, option, parse_gbps, parse_us, positive
from sipml_core.model import MAX_GPUS, Cluster, Fabric, FabricHints
from sipml_core.plugin import Topology
from sipml_ring.circuits import MAX_WAVELENGTHS, RingCircuits
from sipml_ring.retuning import Retuning


def _micros(default: float, doc: str, validator: object = at_least(0)) -> float:
    return option(default, doc=doc, unit="us", converter=parse_us, validator=validator)


#: Options that mean something with one kind of reconfiguration alone.
_ONLY_WITH = {
    "fixed": ("reconfiguration_us",),
    "hwsim": ("tau_us", "tolerance_ghz", "spacing_ghz", "macro_lines"),
}


@attrs.frozen(kw_only=True)
class SipRingOptions:
    #: SiP-ML, section 4.1: the 16 nearest neighbours in both directions.
    reach_hops: int = option(
        16, doc="segments that a circuit may span, either way", validator=between(1, MAX_GPUS)
    )
    #: SiP-ML, section 3.1 (TeraPHY).
    channel_gbps: float = option(
        25.0, doc="capacity of one wavelength", unit="Gbps", converter=parse_gbps, validator=positive
    )
    #: SiP-ML, section 3.3.
    interval_us: float = _micros(100.0, "time between plans", positive)
    #: SiP-ML, section 4.4: measured on micro-ring hardware.
    reconfiguration_us: float = _micros(25.0, "time a changed circuit is dark, if reconfiguration = fixed")
    reconfiguration: str = option(
        "fixed",
        doc="fixed: every change takes reconfiguration_us; hwsim: as long as the rings that really retune",
        validator=one_of("fixed", "hwsim"),
    )
    wavelength: str = option(
        "continuous",
        doc="continuous: one wavelength end to end; converted: GPUs on the way may change it",
        validator=one_of("continuous", "converted"),
    )
    all_dark: bool = option(
        False,
        doc="every circuit goes dark at every plan, changed or not",
        validator=attrs.validators.instance_of(bool),
    )
    latency_us: float = _micros(0.0, "time a byte takes through a circuit")
    tau_us: float = _micros(4.0, "thermal time constant of a micro-ring (hwsim)", positive)
    tolerance_ghz: float = option(
        2.5, doc="a ring locks within this of its line (hwsim)", unit="GHz", validator=positive
    )
    spacing_ghz: float = option(
        200.0, doc="between neighbouring wavelengths (hwsim)", unit="GHz", validator=positive
    )
    macro_lines: int = option(
        8,
        doc="wavelengths that the rings of one macro can reach (hwsim)",
        validator=between(1, MAX_WAVELENGTHS),
    )

    def __attrs_post_init__(self) -> None:
        other = "fixed" if self.reconfiguration == "hwsim" else "hwsim"
        for field in attrs.fields(type(self)):
            if field.name in _ONLY_WITH[other] and getattr(self, field.name) != field.default:
                raise ConfigError(
                    f"{field.name} has no effect with reconfiguration = {self.reconfiguration!r}; "
                    f"leave it out, or set reconfiguration = {other!r}"
                )
        if self.reconfiguration == "fixed" and self.interval_us <= self.reconfiguration_us:
            raise ConfigError(
                f"interval_us must exceed reconfiguration_us ({format_us(self.reconfiguration_us)}), or "
                f"changed circuits never carry anything; got {format_us(self.interval_us)}"
            )
        if self.reconfiguration == "hwsim" and (self.wavelength == "converted" or self.all_dark):
            raise ConfigError(
                "reconfiguration = 'hwsim' follows each wavelength from end to end: it needs "
                "wavelength = 'continuous' and all_dark = false"
            )


class SipRing(Topology):
    """Links 0 .. N-1 are what each GPU sends on, N .. 2N-1 what each receives on, W wavelengths each."""

    name = "sip-ring"
    summary = "a ring of fibres without a switch: wavelengths to near neighbours, re-planned every 100 us"
    scheduler = "ring-fast"
    Options = SipRingOptions

    def build(self, cluster: Cluster) -> Fabric:
        options = self.options
        wavelengths, notes = self._wavelengths(cluster.bandwidth_gbps)
        control = RingCircuits.of(
            cluster.gpus,
            wavelengths,
            circuit_gbps=options.channel_gbps,
            interval_us=options.interval_us,
            reconfiguration_us=options.reconfiguration_us,
            all_dark=options.all_dark,
            reach_hops=options.reach_hops,
            wavelength=options.wavelength,
            retuning=self._retuning(),
        )

        return Fabric.with_ports(
            circuits=control,
            port_gbps=wavelengths * options.channel_gbps,
            latency_us=options.latency_us,
            hints=FabricHints(degree=_degree(control), reach_hops=options.reach_hops),
            notes=notes,
        )

    def _wavelengths(self, bandwidth_gbps: float) -> tuple[int, tuple[str, ...]]:
        channel_gbps, notes = self.options.channel_gbps, []
        wavelengths = math.floor(bandwidth_gbps / channel_gbps * (1 + 1e-12))
        if not 1 <= wavelengths <= 2 * MAX_WAVELENGTHS:
            raise ConfigError(
                f"bandwidth_gbps must be from one wavelength of {channel_gbps:g} Gbps (channel_gbps) to "
                f"{2 * MAX_WAVELENGTHS} of them on sip-ring, got {bandwidth_gbps:g}"
            )
        used_gbps = wavelengths * channel_gbps
        if not math.isclose(used_gbps, bandwidth_gbps):
            notes.append(
                f"{bandwidth_gbps:g} Gbps rounded down to {used_gbps:g}: "
                f"{wavelengths} wavelengths of {channel_gbps:g} Gbps"
            )
        if wavelengths % 2:
            half = wavelengths // 2
            notes.append(
                f"{wavelengths} wavelengths are odd: {half + 1} run clockwise, {half} counter-clockwise"
            )
        return wavelengths, tuple(notes)

    def _retuning(self) -> Retuning | None:
        options = self.options
        if options.reconfiguration == "fixed":
            return None
        retuning = Retuning(
            tau_us=options.tau_us,
            tolerance_ghz=options.tolerance_ghz,
            spacing_ghz=options.spacing_ghz,
            macro_lines=options.macro_lines,
        )
        retuning.check(options.interval_us)
        return retuning


def _degree(control: RingCircuits) -> int | None:
    """Return the peers that a GPU can hold circuits to at once; None on a ring of one."""
    others = np.arange(1, control.gpus, dtype=np.int32)
    peers = int(control.may_connect(np.zeros_like(others), others).sum())
    return min(control.circuits_per_gpu, peers) or None
