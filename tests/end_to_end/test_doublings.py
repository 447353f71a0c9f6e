"""More bandwidth does not make a job slower: the law of docs/electrical.md, and its exceptions."""

import csv
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

_spec = importlib.util.spec_from_file_location("doublings", ROOT / "benchmarks" / "bandwidth_doublings.py")
script = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(script)


def recorded():
    with script.RESULTS.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("network", script.NETWORKS)
def test_twice_the_bandwidth_is_at_most_2_percent_slower(registry, tmp_path, network):
    """One layer with mp = 16, over two servers of a cluster: the worst before layouts had a network's prices.
    Results are those in the repository, so that its list of exceptions is complete for this job."""
    model, gpus, _, batch = script.JOBS["gpt 1 x 1024"]
    plan = {**model, "strategy": {"mp": 16, "dp": 2, "global_batch": batch, "layout": "auto"}}
    found = {
        gbps: script.row_at(registry, tmp_path, plan, network, gpus, gbps).measured_us
        for gbps in script.BANDWIDTHS_GBPS
    }
    rows = [
        row for row in recorded()
        if (row["network"], row["job"], row["mp"], row["layout"]) == (network, "gpt 1 x 1024", "16", "auto")
    ]  # fmt: skip
    assert len(rows) == len(found) - 1
    for row in rows:
        gbps = float(row["gbps"])
        assert found[gbps] == pytest.approx(float(row["slow_us"]), rel=1e-4)
        assert found[2 * gbps] == pytest.approx(float(row["fast_us"]), rel=1e-4)
    slower = [gbps for gbps in script.BANDWIDTHS_GBPS[:-1] if found[2 * gbps] > 1.02 * found[gbps]]
    assert slower == ([4096] if network in ("sip-ring", "elect-cluster") else [])
    assert found[8192] < 0.6 * found[128]
