"""An exchange by binary trees: few steps, for small messages on networks where latency counts."""

import numpy as np

from sipml_core.plugin import Exchange, hookimpl


class Binary(Exchange):
    name = "binary"
    summary = "down a binary tree from each maker: the logarithm of the group's steps"

    def offered(self, shape):
        return shape.devices > 2 and not shape.few_peers

    def parents(self, shape):
        # Number devices from the root on: 0 is the root, and 2 i + 1 and 2 i + 2 are the children of i.
        root, device = np.indices((shape.devices, shape.devices))
        from_root = (device - root) % shape.devices
        return (np.maximum(from_root - 1, 0) // 2 + root) % shape.devices


@hookimpl
def sipml_exchanges():
    return [Binary]
