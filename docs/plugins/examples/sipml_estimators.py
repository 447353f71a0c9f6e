"""An estimator that remembers: what was sent fades from interval to interval, instead of at once."""

import attrs

from sipml_core.fields import between, option
from sipml_core.model import TreatsAlike
from sipml_core.plugin import Estimator, hookimpl


class Fading(TreatsAlike, Estimator):
    name = "fading"
    summary = "what was sent, of which a share is left after each interval, and what waits"

    @attrs.frozen(kw_only=True)
    class Options:
        share: float = option(0.5, doc="what is left of it after one interval", validator=between(0, 1))

    def start(self, network, tasks):
        remembered = 0.0

        def forecast(*, now_us, interval_us, sent_bytes, backlog_bytes):
            nonlocal remembered
            remembered = self.options.share * remembered + sent_bytes
            return remembered + backlog_bytes

        return forecast


@hookimpl
def sipml_estimators():
    return [Fading]
