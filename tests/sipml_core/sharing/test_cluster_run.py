"""Jobs that arrive, wait, run and end on a shared cluster."""

import pytest

from sipml_core.errors import ConfigError
from sipml_core.model import CircuitControl, Cluster
from sipml_core.sharing import run_shared
from sipml_core.sharing.jobtables import read_shared

pytestmark = pytest.mark.interconnects

GPT = {"name": "gpt", "layers": 1, "hidden": 64, "heads": 4, "vocabulary": 128, "sequence": 32}
FLAT = {"name": "elect-flat"}
CLUSTER = {"name": "elect-cluster", "server_gpus": 4, "uplink_gbps": 20}


def shared(registry, jobs, topology=FLAT, gpus=8, **sharing):
    tables = {
        "title": "test", "cluster": {"gpus": gpus, "bandwidth_gbps": 200},
        "workload": [GPT, GPT | {"label": "wide", "hidden": 65536}],
        "plan": {"global_batch": 24}, "topology": [topology], "sharing": sharing,
        "job": [{"workload": "gpt", "iterations": 10, **job} for job in jobs],
    }  # fmt: skip
    return read_shared(tables, registry)


def built(registry, topology, gpus):
    cls = registry.find("topology", topology["name"])
    options = {key: value for key, value in topology.items() if key != "name"}
    return cls(cls.Options(**options)).build(Cluster(gpus=gpus, bandwidth_gbps=200))


def rows(registry, jobs, **options):
    return {row.job: row for row in run_shared(shared(registry, jobs, **options)).rows}


def test_a_job_that_finds_no_gpus_waits_for_the_first_that_ends(registry):
    """Two of 4 GPUs fill 8; the third starts when they end, and takes as long as they did."""
    found = rows(registry, [{"name": name, "gpus": 4} for name in "abc"])
    assert found["a"].waited_us == found["b"].waited_us == 0
    assert found["c"].start_us == found["a"].end_us
    assert found["c"].end_us == pytest.approx(2 * found["a"].end_us)
    assert found["a"].end_us == pytest.approx(10 * found["a"].alone_us)
    assert [row.slowdown for row in found.values()] == pytest.approx([1.0] * len(found))


def test_degrees_of_the_file_are_those_of_jobs_and_not_of_the_cluster(registry):
    """Jobs of 2 x 2 GPUs on a cluster of 8; a file without jobs, or with misspelt ones, says so."""
    tables = {
        "title": "test", "cluster": {"gpus": 8, "bandwidth_gbps": 200}, "workload": [GPT], "topology": [FLAT],
        "plan": {"global_batch": 24, "mp": 2, "dp": 2},
    }  # fmt: skip
    job = {"name": "a", "workload": "gpt", "gpus": 4, "iterations": 1}
    assert read_shared(tables | {"job": [job]}, registry).kinds[0].jobs[0].table.mp == 2
    with pytest.raises(ConfigError, match="no job: write"):
        read_shared(tables, registry)
    with pytest.raises(ConfigError, match=r"experiment\.jobs is not a known key; did you mean 'job'\?"):
        read_shared(tables | {"jobs": [job]}, registry)


def test_in_order_of_arrival_nobody_overtakes_and_with_backfill_small_ones_do(registry):
    """a has 6 of 8 GPUs, b wants 4, c 2."""
    jobs = [
        {"name": "a", "gpus": 6},
        {"name": "b", "gpus": 4, "arrival_us": 1},
        {"name": "c", "gpus": 2, "arrival_us": 2},
    ]
    found = rows(registry, jobs)
    assert found["c"].start_us == found["b"].start_us == found["a"].end_us
    found = rows(registry, jobs, order="backfill")
    assert found["c"].start_us == 2
    assert found["b"].start_us == found["a"].end_us


def test_without_a_front_switch_a_block_waits_though_enough_gpus_are_free(registry):
    """a, b and c have GPUs 0-1, 2-3 and 4-5. b ends first: 4 GPUs are free, but in two gaps of 2."""
    jobs = [
        {"name": "a", "gpus": 2, "iterations": 40}, {"name": "b", "gpus": 2, "iterations": 10},
        {"name": "c", "gpus": 2, "iterations": 40}, {"name": "d", "gpus": 4, "arrival_us": 1},
    ]  # fmt: skip
    found = rows(registry, jobs, allocator="contiguous")
    assert found["d"].start_us == found["a"].end_us > found["b"].end_us
    found = rows(registry, jobs, allocator="contiguous", front_switch=True)
    assert found["d"].start_us == found["b"].end_us
    assert found["d"].gpus_at == "4-7"


def test_jobs_in_servers_of_their_own_run_as_alone_and_others_share_uplinks(registry):
    """Two jobs of 4 in servers of 4; then two of 6, of which both lie in the server in the middle."""
    apart = rows(registry, [{"name": name, "gpus": 4} for name in "ab"], topology=CLUSTER)
    assert [row.iteration_us for row in apart.values()] == pytest.approx([apart["a"].alone_us] * 2)
    met = rows(registry, [{"name": name, "gpus": 6} for name in "ab"], topology=CLUSTER, gpus=12)
    assert met["a"].gpus_at == "0-5"
    assert met["b"].gpus_at == "6-11"
    assert met["a"].slowdown > 1.05
    assert met["b"].iteration_us > met["b"].placed_us * 1.05


def test_jobs_that_meet_in_the_same_way_are_simulated_once(registry):
    """a and b have GPUs in server 1, c and d in server 4: 0-5, 6-11, 12-17 and 18-23 in servers of 4."""
    result = run_shared(shared(registry, [{"name": k, "gpus": 6} for k in "abcd"], topology=CLUSTER, gpus=24))
    assert result.summaries[0].simulated_together == 1
    first, second = [row.end_us for row in result.rows[:2]], [row.end_us for row in result.rows[2:]]
    assert first == pytest.approx(second)


def test_jobs_on_circuits_of_their_own_gpus_share_nothing(registry):
    found = rows(registry, [{"name": name, "gpus": 4} for name in "ab"], topology={"name": "sip-ocs"})
    assert [row.slowdown for row in found.values()] == pytest.approx([1.0] * len(found))
    assert found["b"].gpus_at == "4-7"


def test_the_summary_adds_up(registry):
    """Two of 4 GPUs at once on 8, then one alone: 3 of 4 halves are used, and the gap is in one piece."""
    result = run_shared(shared(registry, [{"name": name, "gpus": 4} for name in "abc"]))
    (summary,) = result.summaries
    assert summary.utilisation == pytest.approx(0.75)
    assert summary.fragmentation == 0
    assert summary.waited_us == pytest.approx(result.rows[0].end_us / 3)


def test_a_job_that_cannot_run_is_named_and_not_waited_for(registry):
    """51 billion parameters of one layer do not fit the memory of four GPUs that each hold all of them."""
    found = rows(registry, [{"name": "huge", "gpus": 4, "workload": "wide"}, {"name": "a", "gpus": 4}])
    assert found["huge"].status == "infeasible"
    assert "the GPU has 32 GB" in found["huge"].reason
    assert found["a"].start_us == 0


def test_a_job_with_fewer_gpus_than_its_network_joins_is_a_row_with_its_reason(registry):
    found = rows(
        registry, [{"name": "one", "gpus": 1}, {"name": "a", "gpus": 4}], topology={"name": "hybrid"}
    )
    assert found["one"].reason == "topology 'hybrid': hybrid joins at least 2 GPUs, got cluster.gpus = 1"
    assert found["a"].status == "ok"


def test_arrivals_are_drawn_with_the_seed(registry):
    tables = {
        "title": "test", "cluster": {"gpus": 8, "bandwidth_gbps": 200}, "workload": [{"name": "resnet50"}],
        "plan": {"global_batch": 64}, "topology": [FLAT],
        "arrivals": {"jobs": 50, "mean_interval_us": "1 s", "gpus": [2, 4], "iterations": [10, 20]},
    }  # fmt: skip
    first, again = (read_shared(tables, registry).jobs for _ in range(2))
    other = read_shared(tables | {"seed": 1}, registry).jobs
    assert first == again != other
    assert {job.gpus for job in first} == {2, 4}
    assert first[-1].arrival_us / 50 == pytest.approx(1e6, rel=0.4)


def test_arrivals_from_a_file(registry, tmp_path):
    file = tmp_path / "jobs.csv"
    file.write_text("name,workload,gpus,arrival_us,iterations\nx,resnet50,4,0,10\ny,resnet50,2,5.5,20\n")
    tables = {
        "title": "test", "cluster": {"gpus": 8, "bandwidth_gbps": 200}, "workload": [{"name": "resnet50"}],
        "plan": {"global_batch": 64}, "topology": [FLAT], "arrivals": {"file": str(file)},
    }  # fmt: skip
    jobs = read_shared(tables, registry).jobs
    assert [(job.name, job.gpus, job.arrival_us, job.iterations) for job in jobs] == [
        ("x", 4, 0, 10),
        ("y", 2, 5.5, 20),
    ]
    file.write_text("name,workload,gpus,arrival_us,iterations\nx,resnet50,4,-1,10\n")
    with pytest.raises(ConfigError, match=r"line 2.arrival_us must be at least 0, got -1"):
        read_shared(tables, registry)


@pytest.mark.parametrize(
    ("jobs", "options", "told"),
    [
        ([{"name": "a", "gpus": 9}], {}, "job 'a' needs 9 GPUs, but cluster.gpus is 8"),
        ([{"name": "a", "gpus": 4}] * 2, {}, r"job\[0\] and job\[1\] are both called 'a'"),
        ([{"name": "a", "gpus": 4, "arrival_us": -1}], {}, r"job\[0\].arrival_us must be at least 0"),
        ([{"name": "a", "gpus": 4, "workload": "gtp"}], {}, "no workload 'gtp'; did you mean 'gpt'"),
        ([{"name": "a", "gpus": 5}], {}, "job 'a': .*global_batch must be a multiple"),
        ([{"name": "a", "gpus": 4}], {"allocator": "first-fti"}, "did you mean 'first-fit'"),
        ([], {}, "no job"),
        ([{"name": "a", "gpus": 4}], {"allocator": 3}, "sharing.allocator must be a table, got 3"),
        ([{"name": "a", "gpus": 4}], {"most_iterations": 3}, "sharing.most_iterations must be at least"),
    ],
)
def test_jobs_that_cannot_be_are_refused_in_one_line(registry, jobs, options, told):
    with pytest.raises(ConfigError, match=told) as refusal:
        shared(registry, jobs, **options)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", ["job", "sharing", "arrivals"])
def test_what_is_no_table_is_refused(registry, name):
    tables = {
        "title": "test", "cluster": {"gpus": 8, "bandwidth_gbps": 200}, "workload": [GPT], "topology": [FLAT],
        "plan": {"global_batch": 24}, name: 3,
    }  # fmt: skip
    with pytest.raises(ConfigError, match=rf"{name}(\[0\])? must be a table, got 3"):
        read_shared(tables, registry)


def test_circuits_whose_rules_are_not_known_are_refused(registry, monkeypatch):
    """A control with rules of its own that does not say what jobs would share."""
    ring = type(built(registry, {"name": "sip-ring"}, 8).circuits)
    monkeypatch.setattr(ring, "contested", CircuitControl.contested)
    with pytest.raises(ConfigError, match=r"'sip-ring': .* is not known .*RingCircuits is None"):
        rows(registry, [{"name": "a", "gpus": 4}], topology={"name": "sip-ring"})
