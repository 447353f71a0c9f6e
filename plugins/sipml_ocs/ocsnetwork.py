"""The topology `sip-ocs`, and three schedulers of its switches."""

from __future__ import annotations

import attrs

from sipml_core.errors import ConfigError
from sipml_core.fields import at_least, between, format_us, one_of, option, parse_us, positive
from sipml_core.model import CircuitControl, CircuitPlan, Cluster, Fabric, FabricHints, TrafficMatrix
from sipml_core.plugin import Scheduler, Topology
from sipml_ocs.ahead import with_later
from sipml_ocs.circuits import OcsCircuits, OcsPlan
from sipml_ocs.cycle import plan_cycle
from sipml_ocs.ocs_planning import plan

#: A plan takes time in proportion to it; more links than this no GPU has.
MAX_SWITCHES = 1024


@attrs.frozen(kw_only=True)
class SipOcsOptions:
    switches: int = option(
        16,
        doc="optical switches of one port per GPU; a GPU has a link of B / switches to each",
        validator=between(1, MAX_SWITCHES),
    )
    #: 10 ms: MEMS switches (SiP-ML, section 3.3).
    reconfiguration_us: float = option(
        10_000.0, doc="time a changed circuit is dark", unit="us", converter=parse_us, validator=at_least(0)
    )
    interval_us: float | None = option(
        None,
        doc="time between plans; left out: one plan, made before the job starts",
        unit="us",
        converter=attrs.converters.optional(parse_us),
        validator=attrs.validators.optional(positive),
    )
    all_dark: bool = option(False, doc="every circuit goes dark at every plan, changed or not")
    relay: bool = option(
        False, doc="with one plan for the job: pairs without a circuit go through a GPU that both reach"
    )
    latency_us: float = option(
        0.0, doc="time a byte takes through a circuit", unit="us", converter=parse_us, validator=at_least(0)
    )

    def __attrs_post_init__(self) -> None:
        if self.interval_us is None:
            for field in attrs.fields(type(self)):
                if field.name in ("reconfiguration_us", "all_dark") and (
                    getattr(self, field.name) != field.default
                ):
                    raise ConfigError(
                        f"{field.name} has no effect on circuits that are set once; leave it out, or set "
                        "interval_us"
                    )
            return
        if self.relay:
            raise ConfigError("relay is for circuits that are set once; leave out interval_us, or relay")
        if self.interval_us <= self.reconfiguration_us:
            raise ConfigError(
                f"interval_us must exceed reconfiguration_us ({format_us(self.reconfiguration_us)}), or "
                f"changed circuits never carry anything; got {format_us(self.interval_us)}"
            )


class SipOcs(Topology):
    """Links 0 .. N-1 are what each GPU sends on, N .. 2N-1 what each receives on, B Gbps each."""

    name = "sip-ocs"
    summary = "optical circuit switches: each GPU has Q links of B/Q, to at most Q peers at a time"
    scheduler = "ocs-exact"
    Options = SipOcsOptions

    def build(self, cluster: Cluster) -> Fabric:
        options = self.options
        control = OcsCircuits(
            gpus=cluster.gpus,
            circuit_gbps=cluster.bandwidth_gbps / options.switches,
            circuits_per_gpu=options.switches,
            interval_us=options.interval_us,
            reconfiguration_us=options.reconfiguration_us,
            all_dark=options.all_dark,
            relay=options.relay,
        )
        return Fabric.with_ports(
            circuits=control,
            port_gbps=cluster.bandwidth_gbps,
            latency_us=options.latency_us,
            hints=FabricHints(degree=options.switches),
        )


def _previous(scheduler: str, previous: CircuitPlan | None) -> OcsPlan | None:
    if previous is not None and not isinstance(previous, OcsPlan):
        raise ConfigError(f"scheduler {scheduler!r} cannot continue a {type(previous).__name__}")
    return previous


class OcsExact(Scheduler):
    """Bisection on the ratio, leftovers by progressive filling, edge colouring into permutations."""

    name = "ocs-exact"
    summary = "exact max-min circuits for optical switches, in milliseconds"
    plans = OcsCircuits

    def plan(self, control: CircuitControl, traffic: TrafficMatrix, previous: CircuitPlan | None) -> OcsPlan:
        assert isinstance(control, OcsCircuits)  # `plans` says so
        return plan(
            traffic,
            switches=control.switches,
            link_gbps=control.circuit_gbps,
            previous=_previous(self.name, previous),
            reconfiguration_us=control.reconfiguration_us,
        )

    def plan_ahead(
        self,
        control: CircuitControl,
        traffic: TrafficMatrix,
        previous: CircuitPlan | None,
        later: TrafficMatrix,
    ) -> CircuitPlan:
        """See `PlansAhead`."""
        made = self.plan(control, traffic, previous)
        return with_later(made, later, _previous(self.name, previous), control.reconfiguration_us)


class OcsDecompose(Scheduler):
    """Weighted permutations in turn where GPUs have more peers than links, `ocs-exact` elsewhere."""

    name = "ocs-decompose"
    summary = (
        "re-planned optical switches: weighted permutations in turn where GPUs have more peers than links"
    )
    plans = OcsCircuits

    @attrs.frozen(kw_only=True)
    class Options:
        steps: int = option(
            4,
            doc="intervals in which every demanded pair has its turn, at least",
            validator=between(1, 1000),
        )
        always: bool = option(
            False, doc="also where one plan can serve every pair, which `ocs-exact` does then"
        )

    def plan(
        self, control: CircuitControl, traffic: TrafficMatrix, previous: CircuitPlan | None
    ) -> CircuitPlan:
        assert isinstance(control, OcsCircuits)  # `plans` says so
        return plan_cycle(
            control,
            traffic,
            _previous(self.name, previous),
            least_steps=self.options.steps,
            always=self.options.always,
        )


class OcsIlp(Scheduler):
    """The mixed-integer programme of appendix A.2, by HiGHS: to check `ocs-exact`."""

    name = "ocs-ilp"
    summary = "the paper's integer programme (A.2) for optical switches, solved by HiGHS"
    plans = OcsCircuits

    @attrs.frozen(kw_only=True)
    class Options:
        formulation: str = option(
            "compact",
            doc="compact: circuits per pair; permutations: every switch spelt out (tiny networks only)",
            validator=one_of("compact", "permutations"),
        )
        time_limit_s: float = option(
            60.0, doc="time HiGHS may take for one plan", unit="s", validator=positive
        )

    def plan(
        self, control: CircuitControl, traffic: TrafficMatrix, previous: CircuitPlan | None
    ) -> CircuitPlan:
        assert isinstance(control, OcsCircuits)  # `plans` says so
        return plan(
            traffic,
            switches=control.switches,
            link_gbps=control.circuit_gbps,
            algorithm=self.name,
            previous=_previous(self.name, previous),
            reconfiguration_us=control.reconfiguration_us,
            formulation=self.options.formulation,
            time_limit_s=self.options.time_limit_s,
        )
