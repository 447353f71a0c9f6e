"""A model to train: an embedding, one hidden layer, a loss over the vocabulary."""

import attrs

from sipml_core.fields import at_least, option
from sipml_core.plugin import Convergence, Workload, hookimpl
from sipml_core.workloads import GraphBuilder, layers, training_step


class TwoLayers(Workload):
    name = "two-layers"
    summary = "an embedding and one hidden layer"
    default_global_batch = 256

    @attrs.frozen(kw_only=True)
    class Options:
        hidden: int = option(512, doc="features of a token", validator=at_least(1))

    def graph(self, samples, precision):
        b = GraphBuilder(self.name, samples, precision)
        tokens = b.input("tokens", (samples, 128), layers.INDEX_BYTES)
        table = b.parameter("embedding", (10_000, self.options.hidden))
        x = layers.embed(b, "embed", tokens, table)
        x = layers.feed_forward(b, "mlp", x, 4 * self.options.hidden, "relu")
        layers.vocabulary_loss(b, "loss", x, table)
        return training_step(b)  # backward and optimizer ops are derived

    def convergence(self, global_batch):
        return Convergence(steps=1e6 / global_batch, extrapolated=True, source="a guess")


@hookimpl
def sipml_workloads():
    return [TwoLayers]
