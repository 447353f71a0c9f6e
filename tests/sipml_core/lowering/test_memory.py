"""Memory per GPU against totals worked by hand."""

import itertools

import attrs
import numpy as np
import pytest

from sipml_core.errors import InfeasibleError
from sipml_core.lowering.memory import memory_per_gpu
from sipml_core.lowering.memorycheck import check_memory, check_parameters
from sipml_core.model.balanced import Placement, PlacementLimits
from sipml_core.model.cluster import Cluster
from sipml_core.model.opgraph import Phase, Role
from sipml_core.model.plan import Plan
from sipml_core.partition.layouts import Layout
from sipml_core.partition.partitioning import partition
from sipml_core.testing import worked

B, U = Phase.BACKWARD, Phase.OPTIMIZER


def plan(mp=1, dp=1, **kwargs):
    return Plan(mp=mp, dp=dp, global_batch=dp * 8, **kwargs)


def aligned(graph, gpu, mp, dim):
    """Every op cut into `mp` parts along `dim`, part p on device p."""
    placement = laid_out(graph, gpu, mp, {op.name: dim for op in graph.ops if op.phase is Phase.FORWARD})
    assert mp == 1 or (placement.graph.parts == mp).all()
    return placement


def laid_out(graph, gpu, mp, dims, *duplicated):
    """Ops cut along `dims`, part p on device p; the ops named after are done in full on every device."""
    layout = Layout(name="hand", dims=dims, duplicated=frozenset(duplicated))
    cluster = Cluster(gpus=mp, bandwidth_gbps=8.0)
    balanced = partition(graph, gpu, cluster, mp=mp, tau_us=40.0 / mp, layout=layout)
    part = np.arange(balanced.subops) - balanced.first[balanced.subop_op]
    return Placement(graph=balanced, limits=PlacementLimits(devices=mp), device=part)


@pytest.mark.parametrize("mp", [1, 2, 8])
def test_eighteen_billion_parameters_take_288_gb_over_mp(two_layers, gpu, mp):
    """Mixed precision, Adam: 2 + 2 + 12 = 16 bytes each (Rajbhandari et al. 2020), divided by mp."""
    graph = two_layers(inputs=150_000, outputs=120_000, layers=1, precision="mixed")
    use = memory_per_gpu(aligned(graph, gpu, mp, "o"), plan(mp=mp))
    assert use.parameters_bytes.tolist() == [36e9 / mp] * mp
    assert use.gradients_bytes.tolist() == [36e9 / mp] * mp
    assert use.optimizer_bytes.tolist() == [216e9 / mp] * mp


@pytest.mark.parametrize("dim", ["n", "i", "o"])
def test_shards_add_up_to_the_whole_and_copies_to_mp_times_it(two_layers, gpu, dim):
    """Cut by column or row, each parameter is stored once; cut along the batch, once on each device."""
    graph = two_layers(inputs=8, hidden=6, outputs=4)
    use = memory_per_gpu(aligned(graph, gpu, 2, dim), plan(mp=2))
    copies = 2 if dim == "n" else 1
    assert use.parameters_bytes.sum() == copies * graph.parameter_bytes
    assert use.gradients_bytes.sum() == copies * graph.parameter_bytes
    assert use.optimizer_bytes.sum() == copies * 2 * graph.parameter_bytes


def test_activations_of_two_layers_by_hand(two_layers, gpu):
    """fp32, batch 8: input 8 x 4, activation 8 x 6 and the loss's gradient 8 x 5, 4 bytes each."""
    use = memory_per_gpu(aligned(two_layers(), gpu, 1, "n"), plan())
    assert use.activations_bytes.tolist() == [4 * 8 * (4 + 6 + 5)]


def test_a_batch_divided_over_devices_divides_activations(two_layers, gpu):
    """Cut along the batch, every device keeps its own samples and nothing else."""
    use = memory_per_gpu(aligned(two_layers(), gpu, 2, "n"), plan(mp=2))
    assert use.activations_bytes.tolist() == [4 * 4 * (4 + 6 + 5)] * 2


def read_back(hand, devices, *, sources=1, box=(0, 100)):
    """Op a makes t, ops b and c read it going backward; the parts of a make the same box."""
    hand.tensor("t", 100)
    hand.op("a", parts=sources, writes=["t"])
    hand.op("b", phase=B, reads=["t"], follows="a")
    hand.op("c", phase=B, reads=["t"], follows="a")
    for part in range(sources):
        hand.edge(f"a.{part}", "b.0", "t", box)
        hand.edge(f"a.{part}", "c.0", "t", box)
    return hand.placed(devices, mp=3)


def test_a_received_copy_is_kept_where_it_is_read(hand):
    """Made on device 0, read back on 1 and 2: 400 bytes on each of these, none where it was made."""
    use = memory_per_gpu(read_back(hand, [0, 1, 2]), plan(mp=3))
    assert use.activations_bytes.tolist() == [0.0, 400.0, 400.0]


def test_two_readers_on_one_device_share_what_they_read(hand):
    use = memory_per_gpu(read_back(hand, [0, 2, 2]), plan(mp=3))
    assert use.activations_bytes.tolist() == [0.0, 0.0, 400.0]


def test_partial_sums_are_kept_as_one(hand):
    """Two partial sums of the same box become one tensor of 400 bytes where they are added."""
    use = memory_per_gpu(read_back(hand, [0, 1, 2, 2], sources=2), plan(mp=3))
    assert use.activations_bytes.tolist() == [0.0, 0.0, 400.0]


def test_what_only_the_forward_pass_reads_is_not_kept(hand):
    hand.tensor("t", 100)
    hand.op("a", writes=["t"])
    hand.op("b", reads=["t"])
    hand.edge("a.0", "b.0", "t", (0, 100))
    assert memory_per_gpu(hand.placed([0, 0], mp=1), plan()).activations_bytes.tolist() == [0.0]


def test_recomputation_keeps_checkpoints_and_one_segment(hand):
    """Four activations of 40 bytes in segments (0, 1) and (2, 3): a1 kept, then at most a2 and a3."""
    placement = hand.layers()
    assert memory_per_gpu(placement, plan()).activations_bytes.tolist() == [160.0]
    assert memory_per_gpu(placement, plan(recompute=True)).activations_bytes.tolist() == [120.0]


def test_a_checkpoint_is_kept_for_the_second_run_that_starts_from_it(hand):
    """Three blocks of a large and a small op; backward reads the large ones, blocks read the small ones.

    Segments are the blocks. Kept: the small output that the second run of block 1 reads (40 bytes; the
    last block does not run again), and one large activation (1200 bytes) at a time.
    """
    for k in range(6):
        hand.tensor(f"a{k}", 10 if k % 2 else 300)
    for k in range(6):
        hand.op(f"f{k}", reads=[f"a{k - 1}"] if k else [], writes=[f"a{k}"])
    for k in (4, 2, 0):
        hand.op(f"b{k}", phase=B, reads=[f"a{k}"], follows=f"f{k}")
    for k in range(6):
        size = (0, 10 if k % 2 else 300)
        if k < 5:
            hand.edge(f"f{k}.0", f"f{k + 1}.0", f"a{k}", size)
        if k % 2 == 0:
            hand.edge(f"f{k}.0", f"b{k}.0", f"a{k}", size)
    use = memory_per_gpu(hand.placed([0] * 9, mp=1), plan(recompute=True))
    assert use.activations_bytes.tolist() == [40.0 + 1200.0]


def test_recomputation_saves_with_the_square_root_of_the_depth(hand):
    """n equal layers: s - 1 checkpoints and n / s activations, least at s = sqrt(n) (Chen et al. 2016)."""
    use = memory_per_gpu(hand.layers(count=64), plan(recompute=True))
    assert use.activations_bytes[0] == 40.0 * (7 + 8)


def test_what_a_duplicated_op_keeps_is_whole_on_every_device_by_hand(two_layers, gpu):
    """f0 cut by column, f1 along the batch of 8, on two devices, fp32. Kept: the input 8 x 4, which f0 needs
    whole; the activation 8 x 6 and the loss's gradient 8 x 5, which f1 needs, in halves or in full.
    Parameters: half of 4 x 6, and 6 x 5 whole."""
    for duplicated, kept in (((), 8 * 4 + 4 * (6 + 5)), (("f1",), 8 * (4 + 6 + 5))):
        use = memory_per_gpu(laid_out(two_layers(), gpu, 2, {"f0": "o", "f1": "n"}, *duplicated), plan(mp=2))
        assert use.activations_bytes.tolist() == [4.0 * kept] * 2
        assert use.parameters_bytes.tolist() == [4.0 * (12 + 30)] * 2


def test_devices_without_a_part_of_a_duplicated_op_keep_as_much(two_layers, gpu):
    """Two samples have parts for two of four devices; all four hold 2 x (4 + 6 + 5) and 4 x 6 + 6 x 5."""
    graph = two_layers(samples=2)
    use = memory_per_gpu(laid_out(graph, gpu, 4, {"f0": "n", "f1": "n"}, "f0", "f1"), plan(mp=4))
    assert use.activations_bytes.tolist() == [4.0 * 30] * 4
    assert use.parameters_bytes.tolist() == use.gradients_bytes.tolist() == [4.0 * 54] * 4


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("mp", [2, 3])
def test_where_everything_is_duplicated_each_device_needs_what_one_alone_would(
    two_layers, gpu, mp, recompute
):
    graph = two_layers(layers=5)
    dims = {f"f{k}": "n" for k in range(5)}
    alone = memory_per_gpu(laid_out(graph, gpu, 1, dims), plan(recompute=recompute))
    among = memory_per_gpu(laid_out(graph, gpu, mp, dims, *dims), plan(mp=mp, recompute=recompute))
    for field in attrs.fields(type(alone)):
        assert getattr(among, field.name).tolist() == getattr(alone, field.name).tolist() * mp, field.name


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("dim", ["n", "i", "o"])
def test_a_larger_batch_takes_more_activations_and_no_more_of_the_rest(two_layers, gpu, dim, recompute):
    uses = []
    for samples in (4, 8, 16, 32):
        placement = aligned(two_layers(samples=samples, layers=5), gpu, 2, dim)
        uses.append(memory_per_gpu(placement, plan(mp=2, recompute=recompute)))
    for smaller, larger in itertools.pairwise(uses):
        assert (larger.activations_bytes > smaller.activations_bytes).all()
        assert (larger.parameters_bytes == smaller.parameters_bytes).all()


def test_a_shared_parameter_is_stored_once(hand):
    """Two ops of one device that read the same parameter share it."""
    hand.tensor("w", 10, role=Role.PARAMETER)
    hand.tensor("dw", 10, role=Role.GRADIENT, parameter="w")
    for name in ("f", "g"):
        hand.op(name, reads=["w"])
    hand.op("wgrad", phase=B, writes=["dw"], follows="f")
    use = memory_per_gpu(hand.placed([0, 0, 0], mp=1), plan())
    assert use.parameters_bytes.tolist() == [40.0]
    assert use.total_bytes.tolist() == [160.0]


def test_what_fits_is_returned_and_what_does_not_is_refused_with_numbers(two_layers, gpu):
    """1 parameter element of fp32 takes 16 bytes: (4 x 6 + 6 x 5) x 16 = 864, activations 480."""
    placement = aligned(two_layers(), gpu, 1, "n")
    assert check_memory(placement, plan(), 1344) == 1344
    with pytest.raises(InfeasibleError) as refusal:
        check_memory(placement, plan(), 1343)
    message = str(refusal.value)
    assert "1.344 kB (parameters 216 B, gradients 216 B, optimizer 432 B, activations 480 B)" in message
    assert "the GPU has 1.343 kB" in message
    assert message.endswith("; micro_batch = 4 would do, or raise mp or lower the batch")
    assert "\n" not in message
    with pytest.raises(InfeasibleError) as refusal:
        check_memory(placement, plan(recompute=True), 100)
    assert "recompute" not in str(refusal.value)


def test_replicas_are_alike(two_layers, gpu):
    """More groups at the same local batch change nothing on a GPU."""
    placement = aligned(two_layers(), gpu, 2, "o")
    one, many = (memory_per_gpu(placement, plan(mp=2, dp=dp)) for dp in (1, 16))
    for field in attrs.fields(type(one)):
        assert np.array_equal(getattr(one, field.name), getattr(many, field.name))


@pytest.mark.parametrize(("mp", "needed"), [(1, 112.0), (4, 28.0)])
def test_parameters_alone_are_refused_before_anything_is_cut(mp, needed):
    """4 + 3 parameters, each with 2 + 2 + 12 bytes in mixed precision, on mp devices at best."""
    assert check_parameters(worked.two_layers(), plan(mp), needed) == needed
    with pytest.raises(InfeasibleError, match=rf"mp={mp} does not fit: parameters.*raise mp"):
        check_parameters(worked.two_layers(), plan(mp), needed - 1)


def test_no_placement_needs_less_than_its_parameters():
    """What the quick check refuses, the exact one refuses as well."""
    need = memory_per_gpu(worked.placed(), plan(3))
    alone = check_parameters(worked.two_layers(), plan(3), 1e9)
    states = need.parameters_bytes + need.gradients_bytes + need.optimizer_bytes
    assert alone <= states.max() < need.total_bytes.max()
