"""Results are found again by the values they were made of, never by a label."""

import attrs
import pytest

from sipml_core.cases.case import Case
from sipml_core.cases.reuse import Reuse
from sipml_core.cases.variants import chosen_layouts, exchanging, group_shape, variants_of
from sipml_core.collectives import Direct
from sipml_core.experiment.reading import EngineTable, Interconnect, Job, StrategyTable
from sipml_core.gpus import A100, V100
from sipml_core.model.cluster import Cluster
from sipml_core.model.fabric import Fabric
from sipml_core.model.prices import Prices
from sipml_core.model.routes import Routes
from sipml_core.placement import Algorithm1, Aligned
from sipml_core.plugin.interfaces import Topology
from sipml_core.workloads import Gpt


class NoNetwork(Topology):
    """A topology that is never built here."""

    name = "none"
    summary = "for tests"

    def build(self, cluster):
        raise NotImplementedError


def gpt(**options):
    return Gpt(
        Gpt.Options(**{"layers": 1, "hidden": 64, "heads": 4, "sequence": 64, "vocabulary": 128} | options)
    )


def case(workload, *, layout="tensor", placer=None, gpu=None, bandwidth_gbps=100.0, tau_us=1e-3):
    """A job of four GPUs, always under the same labels."""
    table = StrategyTable(mp=4, dp=1, global_batch=8, layout=layout, tau_us=tau_us)
    placer = placer or Aligned(Aligned.Options())
    cluster = Cluster(gpus=4, bandwidth_gbps=bandwidth_gbps)
    job = Job(label="job", workload=workload, table=table, placer=placer)
    return Case(
        job=job,
        interconnect=Interconnect(
            label="net", topology=NoNetwork(None), cluster=cluster, scheduler=None, estimator="window"
        ),
        plan=job.plan(4),
        gpu=gpu or V100(V100.Options()),
        precision="mixed",
        seed=0,
        engine=EngineTable(),
    )


def nothing_between(src, dst):
    return Routes(links=[[0]] * len(src), latency_us=[0.0] * len(src))


FABRIC = Fabric(gpus=4, link_gbps=[100.0], route=nothing_between)
MODEL = gpt()


def variants(one_case, reuse):
    gbps = one_case.interconnect.cluster.bandwidth_gbps
    prices = Prices.flat(gbps)
    shape = group_shape(FABRIC, one_case.plan, prices, gbps)
    way = exchanging(one_case, FABRIC, Direct(None), shape)
    (layout,) = chosen_layouts(one_case, [prices], reuse)
    return variants_of(one_case, FABRIC, way, layout, reuse)


def signature(one_case, reuse):
    """What a variant depends on, in numbers."""
    (variant,) = variants(one_case, reuse)
    graph = variant.placement.graph
    return (
        variant.memory_bytes,
        graph.split_dim,
        graph.duration_us.tobytes(),
        variant.placement.device.tobytes(),
        [op.name for op in graph.graph.ops],
    )


OTHERS = {
    "layout": case(MODEL, layout="sample"),
    "placer": case(MODEL, placer=Algorithm1(Algorithm1.Options())),
    "workload options": case(gpt(layers=2)),
    "GPU": case(MODEL, gpu=A100(A100.Options())),
    "tau": case(MODEL, tau_us=1e3),
    "precision": attrs.evolve(case(MODEL), precision="fp32"),
}


@pytest.mark.parametrize("what", OTHERS)
def test_what_was_seen_before_changes_nothing(what):
    """A case under the same labels but with one other input gives what it gives to a fresh memory."""
    used = Reuse()
    first = signature(case(MODEL), used)
    again = signature(OTHERS[what], used)
    assert again == signature(OTHERS[what], Reuse())
    if what != "placer":
        assert again != first


def test_equal_inputs_are_computed_once():
    """The same workload for two networks of one bandwidth is cut and placed once."""
    reuse, calls = Reuse(), []

    def counted(number):
        calls.append(number)
        return number + 1

    assert [reuse(counted, 1), reuse(counted, 1), reuse(counted, 2)] == [2, 2, 3]
    assert calls == [1, 2]
    one, other = case(MODEL), case(MODEL)
    gpu = one.gpu
    (first,) = variants(one, reuse)
    same = attrs.evolve(other, gpu=gpu, job=attrs.evolve(other.job, placer=one.job.placer, label="another"))
    (second,) = variants(same, reuse)
    assert second.placement is first.placement


def test_the_oldest_result_goes_first():
    reuse, calls = Reuse(), []

    def counted(number):
        calls.append(number)
        return number

    for number in (1, 2, 3, 2, 1):
        reuse(counted, number, keep=2)
    assert calls == [1, 2, 3, 1]
