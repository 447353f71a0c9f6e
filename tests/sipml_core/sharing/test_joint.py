"""Jobs side by side: fair shares of what they share, and nothing else. 80 Gbps move 10 000 bytes in 1 us."""

import numpy as np
import pytest

from sipml_core.model import Cluster, Network
from sipml_core.sharing.joint import Iteration, Neighbour, joint_iterations_us
from sipml_core.sharing.neighbours import Footprint, groups_that_share, links_shared
from sipml_core.sharing.views import View
from sipml_core.testing.jobs import transfers_only

pytestmark = pytest.mark.interconnects


@pytest.fixture
def fabric(registry):
    """Four servers of 2 GPUs at 800 Gbps with uplinks of 80."""
    cluster = registry.find("topology", "elect-cluster")
    options = cluster.Options(server_gpus=2, uplink_gbps=80)
    return cluster(options).build(Cluster(gpus=8, bandwidth_gbps=800))


def neighbour(fabric, gpus, size_bytes, alone_us, offset_us=0.0):
    """A job of two GPUs whose iteration sends so much from the first to the second."""
    view = View.of(fabric, np.array(gpus, np.int32))
    tasks = transfers_only(2, [0], [1], size_bytes)
    network = Network.of(view.fabric, tasks)
    return Neighbour(
        view=view, iteration=Iteration.of(tasks), network=network, alone_us=alone_us, offset_us=offset_us
    )


def test_jobs_on_other_links_run_as_alone(fabric):
    """1 MB from server 0 to 1 takes 100 us, 2 MB from 2 to 3 takes 200."""
    jobs = [neighbour(fabric, (0, 2), 1e6, 100.0), neighbour(fabric, (4, 6), 2e6, 200.0)]
    assert joint_iterations_us(jobs, 8, 4)[0] == pytest.approx([100.0, 200.0])


def test_a_shared_uplink_slows_both_by_fair_shares(fabric):
    """Both send over the uplink of server 0, each at half of it: 1 MB in 200 us, 2 MB in 400."""
    jobs = [neighbour(fabric, (0, 2), 1e6, 100.0), neighbour(fabric, (1, 4), 2e6, 200.0)]
    means, later = joint_iterations_us(jobs, 8, 6)
    assert means == pytest.approx([200.0, 400.0])
    assert later == pytest.approx([200.0, 400.0])


def test_a_later_start_does_not_count_as_iteration_time(fabric):
    """The second begins 50 us later; from then on both share, until the first ends."""
    jobs = [neighbour(fabric, (0, 2), 1e6, 100.0), neighbour(fabric, (1, 4), 1e6, 100.0, offset_us=50.0)]
    means, later = joint_iterations_us(jobs, 8, 10)
    assert later == pytest.approx([200.0, 200.0])
    assert means[1] == pytest.approx(200.0)
    assert means[0] == pytest.approx(200.0 - 50.0 / 10)  # alone, it sent in 50 us what takes 100 later


def test_views_that_are_alike_have_the_same_key(fabric):
    """GPUs of the same server, or of two, wherever they are; links are those of the cluster."""
    inside = [View.of(fabric, np.array(gpus, np.int32)) for gpus in ((0, 1), (6, 7))]
    across = [View.of(fabric, np.array(gpus, np.int32)) for gpus in ((0, 2), (3, 6))]
    assert inside[0].key == inside[1].key != across[0].key == across[1].key
    names = [fabric.link_name(int(link)) for link in across[1].links]
    assert names[:4] == ["egress 3", "uplink of server 1", "downlink of server 3", "ingress 6"]
    assert inside[0].fabric.hints.tiers == (("server", 2),)


def test_a_job_on_whole_rows_of_a_torus_is_told_so(registry):
    """Of 4 x 4: one row, two rows, which are a part of the columns, and half of a row."""
    torus = registry.find("topology", "torus")
    fabric = torus(torus.Options(shape=(4, 4))).build(Cluster(gpus=16, bandwidth_gbps=400))
    jobs = (range(4, 8), range(8), (0, 1))
    assert [View.of(fabric, np.array(gpus, np.int32)).fabric.hints.torus for gpus in jobs] == [(4,), (), ()]


def test_only_links_that_jobs_can_fill_together_join_them(fabric):
    """Jobs 0 and 1 share the uplink of server 0; job 2 lies inside server 3."""
    views = [View.of(fabric, np.array(gpus, np.int32)) for gpus in ((0, 2), (1, 4), (6, 7))]

    def groups(gpu_gbps):
        prints = [Footprint.of(view, gpu_gbps) for view in views]
        return groups_that_share(links_shared(prints, fabric.link_gbps))

    assert groups(800.0) == [[0, 1]]
    # With GPUs of 40 Gbps two cannot fill an uplink of 80.
    assert groups(40.0) == []
