"""The suite of workloads finds each law broken, and passes one that keeps them all."""

import attrs
import pytest

from sipml_core.model import Phase, Role, Split
from sipml_core.plugin import Convergence, Workload
from sipml_core.testing import LawBroken, WorkloadConformance
from sipml_core.workloads import GraphBuilder, layers, training_step


class Sound(Workload):
    """An embedding and one hidden layer; the faulty ones below change one thing each."""

    name = "sound"
    summary = "an embedding and one hidden layer"
    default_global_batch = 8

    def graph(self, samples, precision):
        return self.changed(self.step(samples, precision))

    def step(self, samples, precision, hidden=8):
        b = GraphBuilder(self.name, samples, precision)
        tokens = b.input("tokens", (samples, 4), layers.INDEX_BYTES)
        table = b.parameter("embedding", (32, hidden))
        x = layers.embed(b, "embed", tokens, table)
        x = layers.feed_forward(b, "mlp", x, 2 * hidden, "relu")
        layers.vocabulary_loss(b, "loss", x, table)
        return training_step(b)

    def changed(self, graph):
        return graph

    def convergence(self, global_batch):
        return Convergence(steps=1000.0, extrapolated=False, source="made up")


def with_ops(graph, change):
    """The graph with each op changed; one for which `change` returns None is left out."""
    ops = (change(op) for op in graph.ops)
    return attrs.evolve(graph, ops=tuple(op for op in ops if op is not None))


class AnotherBatch(Sound):
    def graph(self, samples, precision):
        return self.step(samples + 1, precision)


class Remembers(Sound):
    """The second graph that is asked for is wider."""

    asked = 0

    def graph(self, samples, precision):
        Remembers.asked += 1
        return self.step(samples, precision, hidden=8 + Remembers.asked)


class NeverLearns(Sound):
    def changed(self, graph):
        return with_ops(graph, lambda op: op if op.phase is not Phase.OPTIMIZER else None)


class ForgetsOne(Sound):
    """The embedding is never updated."""

    def changed(self, graph):
        def kept(op):
            reads = {operand.tensor for operand in op.reads}
            return None if op.phase is Phase.OPTIMIZER and "embedding" in reads else op

        return with_ops(graph, kept)


class SameWork(Sound):
    """As many flops for any batch."""

    def changed(self, graph):
        return with_ops(graph, lambda op: attrs.evolve(op, flops=1e6) if op.phase is Phase.FORWARD else op)


class Grows(Sound):
    """A larger model for a larger batch: its vocabulary has no more work, but more parameters."""

    def changed(self, graph):
        unused = attrs.evolve(graph.tensor["embedding"], name="unused", shape=(graph.samples, 1))
        return attrs.evolve(graph, tensors=(*graph.tensors, unused))


class MisnamedSplit(Sound):
    def changed(self, graph):
        def renamed(op):
            rows = {dim: Split.COLUMN if split is Split.ROW else split for dim, split in op.splits.items()}
            return attrs.evolve(op, splits=rows)

        return with_ops(graph, renamed)


class LostDimension(Sound):
    def changed(self, graph):
        return with_ops(graph, lambda op: attrs.evolve(op, splits={**op.splits, "zz": Split.SAMPLE}))


class Never(Sound):
    def convergence(self, global_batch):
        return Convergence(steps=float("inf"), extrapolated=False, source="made up")


class NoSource(Sound):
    def convergence(self, global_batch):
        return Convergence(steps=1.0, extrapolated=False, source="")


class Refuses(Sound):
    def graph(self, samples, precision):
        raise KeyError(precision)


def suite(workload):
    return type("Suite", (WorkloadConformance,), {"workload": workload})()


def test_a_sound_workload_passes():
    made = suite(Sound)
    for name in dir(made):
        if name.startswith("test_"):
            getattr(made, name)()


@pytest.mark.parametrize(
    ("workload", "check", "told"),
    [
        (AnotherBatch, "a_graph_is_for_the_batch_and_the_precision_asked_for", r"samples=1.*\n.*samples = 2"),
        (Remembers, "the_same_batch_gives_the_same_graph", "two calls, two graphs"),
        (NeverLearns, "a_step_goes_forward_and_back_and_updates_what_it_learns", "has ops of every phase"),
        (ForgetsOne, "a_step_goes_forward_and_back_and_updates_what_it_learns",
         r"parameter=embedding, samples=1.*\n.*no optimizer op reads it"),
        (SameWork, "more_samples_are_more_work_and_no_more_parameters",
         r"samples=2.*\n.*1 times, samples 2"),
        (Grows, "more_samples_are_more_work_and_no_more_parameters", "as large for any batch"),
        (MisnamedSplit, "a_row_split_is_one_that_leaves_partial_sums", "it is called COLUMN"),
        (LostDimension, "slices_do_the_whole_work", r"dim=zz.*\n.*its dimensions are"),
        (Never, "convergence_is_stated_for_every_batch", "inf steps"),
        (NoSource, "convergence_is_stated_for_every_batch", "no source"),
        (Refuses, "it_trains", r"gpus=4, mp=1\n.*KeyError: 'mixed' \(test_workload_suite.py"),
        (Refuses, "the_same_batch_gives_the_same_graph", "graph returns an OpGraph"),
    ],
)  # fmt: skip
def test_each_law_is_found_broken(workload, check, told):
    with pytest.raises(LawBroken, match=told):
        getattr(suite(workload), f"test_{check}")()


def test_the_roles_of_the_worked_example():
    """The faults above have something to act on: two uses of one parameter, and row splits."""
    graph = Sound(Sound.Options()).graph(2, "mixed")
    assert sum(tensor.parameter == "embedding" for tensor in graph.tensors) == 2
    assert any(Split.ROW in op.splits.values() for op in graph.ops if op.phase is Phase.FORWARD)
    assert graph.tensor["embedding"].role is Role.PARAMETER
