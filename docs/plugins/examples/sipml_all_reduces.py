"""An all-reduce over racks alone, for clusters whose servers are no faster inside than to their rack."""

from sipml_core.errors import InfeasibleError
from sipml_core.plugin import AllReduce, hookimpl


class RackFirst(AllReduce):
    name = "rack-first"
    summary = "inside the largest units first, then across them"

    def offered(self, shape):
        return len(shape.counterparts_in) > 1

    def tiers(self, shape):
        if not shape.counterparts_in:
            raise InfeasibleError("all_reduce 'rack-first' needs racks of whole groups; use 'flat'")
        in_rack = shape.counterparts_in[-1]
        return (shape.replicas // in_rack, in_rack)


@hookimpl
def sipml_all_reduces():
    return [RackFirst]
