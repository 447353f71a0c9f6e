"""A library that takes 5 us to begin a call, and reaches 80 % of the links."""

import attrs

from sipml_core.fields import at_least, option
from sipml_core.model import CollectiveCost
from sipml_core.plugin import Communication, hookimpl


class Steady(Communication):
    name = "steady"
    summary = "the same start-up for every call, and 80 % of the links"

    @attrs.frozen(kw_only=True)
    class Options:
        startup_us: float = option(5.0, doc="to begin a call", unit="us", validator=at_least(0))

    def cost(self, call):
        return CollectiveCost(startup_us=self.options.startup_us, wire_factor=1 / 0.8)


@hookimpl
def sipml_communication():
    return [Steady]
