"""Plans that leave everything as it is: neither checked nor set again, and nothing comes out otherwise."""

import numpy as np
import pytest
from sipml_ocs.circuits import OcsPlan
from sipml_ocs.ocs_planning import plan as ocs_plan
from sipml_ring.ring_plan import RingPlan
from sipml_ring.ring_planning import plan as ring_plan

from sipml_core.cases import run_experiment
from sipml_core.experiment import read_experiment
from sipml_core.model import TrafficMatrix

RING = {"name": "sip-ring", "reach_hops": 6}
OCS = {"name": "sip-ocs", "interval_us": 100, "reconfiguration_us": 20}


def plans(kind, previous, traffic):
    if kind is RingPlan:
        return ring_plan(traffic, wavelengths=8, reach_hops=3, previous=previous)
    return ocs_plan(traffic, switches=6, link_gbps=25.0, previous=previous, reconfiguration_us=5.0)


@pytest.mark.parametrize("kind", [RingPlan, OcsPlan])
def test_a_plan_stays_where_every_circuit_does(kind):
    """Demands of the same ratios: the second plan stays. Another demand: it does not, and it is dark."""
    demand = np.zeros((8, 8))
    demand[0, 1], demand[0, 2], demand[3, 4] = 4.0, 1.0, 2.0
    first = plans(kind, None, TrafficMatrix.from_dense(demand))
    second = plans(kind, first, TrafficMatrix.from_dense(3 * demand))
    assert second.stays(first)
    demand[0, 2], demand[0, 1] = 4.0, 1.0
    third = plans(kind, second, TrafficMatrix.from_dense(demand))
    assert not third.stays(second)
    assert third.dark_us.max() > 0
    # Settled, it stays.
    assert plans(kind, third, TrafficMatrix.from_dense(2 * demand)).stays(third)


@pytest.mark.parametrize(("network", "kind"), [(RING, RingPlan), (OCS, OcsPlan)], ids=["ring", "ocs"])
def test_what_stays_changes_no_result(registry, monkeypatch, network, kind):
    """The same run with every plan checked and set: same times, dark times and numbers of plans."""
    tables = {
        "title": "stays",
        "cluster": {"gpus": 16, "bandwidth_gbps": 1000},
        "workload": {"name": "gpt", "layers": 2},
        "plan": {"mp": 2, "pp": 2, "global_batch": 16, "micro_batch": 1},
        "topology": network,
    }
    read = read_experiment(tables, registry)
    stayed = []
    real = kind.stays
    monkeypatch.setattr(kind, "stays", lambda *plans: stayed.append(real(*plans)) or stayed[-1])
    (fast,) = run_experiment(read).cases
    assert any(stayed)
    monkeypatch.setattr(kind, "stays", lambda *plans: False)
    (slow,) = run_experiment(read).cases
    assert fast == slow
