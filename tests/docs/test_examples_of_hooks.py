"""The examples in the pages of hooks are plugins that work and keep the laws."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from sipml_core.plugin.registry import Source, collect
from sipml_core.testing import PlacerConformance

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "plugins" / "examples"


def example(hook):
    return load_module(EXAMPLES / f"{hook}.py")


def load_module(path):
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def registry(hook):
    return collect([(Source(plugin="example", distribution="docs"), example(hook))])


def test_sipml_workloads_offers_a_model_that_can_be_trained():
    """10 000 x 512 embedding, 512 x 2048 and 2048 x 512 matrices, biases of 2048 and 512."""
    workload = registry("sipml_workloads").find("workload", "two-layers")
    graph = workload(workload.Options()).graph(4, "mixed")
    assert graph.parameter_elements == 10_000 * 512 + 2 * 512 * 2048 + 2048 + 512


class TestPlacer(PlacerConformance):
    placer = example("sipml_placers").PartByPart


def test_sipml_placers_offers_it():
    assert registry("sipml_placers").names("placer") == ["part-by-part"]


def test_sipml_estimators_remembers_what_was_sent():
    """Half of what was sent is left after an interval: 8 bytes, then 4 and 2 more; 1 byte waits."""
    estimator = registry("sipml_estimators").find("estimator", "fading")
    forecast = estimator(estimator.Options()).start(None, None)

    def expected(sent, waiting):
        at = {"now_us": 0.0, "interval_us": 1.0}
        return forecast(sent_bytes=np.array(sent), backlog_bytes=np.array(waiting), **at).tolist()

    assert expected([8.0], [0.0]) == [8.0]
    assert expected([2.0], [1.0]) == [7.0]


@pytest.mark.parametrize("hook", ["sipml_run_started", "sipml_run_finished"])
def test_observers_load(hook):
    assert registry(hook).observers(hook) == ["example"]


@pytest.mark.parametrize(
    ("path", "hook", "role", "name"),
    [
        ("third_party_gpu/sipml_spec_sheet.py", "sipml_gpu_models", "gpu", "spec-sheet"),
        ("third_party_scheduler/sipml_hottest_first.py", "sipml_schedulers", "scheduler", "hottest-first"),
    ],
)
def test_the_small_third_party_modules_offer_what_they_say(path, hook, role, name):
    module = load_module(ROOT / "examples" / path)
    found = collect([(Source(plugin="example", distribution="docs"), module)])
    assert (found.names(role), found.problems) == ([name], [])
    assert any(line.startswith(hook) for line in found.trace)
