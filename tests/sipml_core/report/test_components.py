"""What `plugins` prints: each column shows the field it says."""

import attrs
import pytest

from sipml_core.errors import ConfigError
from sipml_core.fields.options import option
from sipml_core.report.components import component_page, components_table, option_rows, trace_lines


@pytest.fixture(scope="module")
def fake_registry(fakes):
    return fakes.fake_registry()


def test_the_list_says_role_name_summary_and_source(fake_registry, columns):
    """Roles in the order of the hooks, names in the order of the alphabet."""
    assert columns(components_table(fake_registry)) == {
        "role": ["workload", "gpu", "placer", "topology", "topology", "scheduler", "estimator"],
        "name": ["tiny", "v100", "algorithm1", "ring", "switch", "greedy", "window"],
        "what it is": [
            "a workload of a few ops", "one microsecond for everything", "places nothing", "a ring",
            "a switch", "a scheduler", "an estimator",
        ],
        "from": ["fakes (tests)"] * 7,
    }  # fmt: skip


def test_a_page_says_option_type_unit_default_and_meaning(fake_registry, columns):
    page = component_page(fake_registry, "ring")
    assert columns(page) == {
        "option": ["reach_hops"],
        "type": ["int"],
        "unit": [""],
        "default": ["16"],
        "meaning": ["reach"],
    }
    assert str(page.title) == "topology ring: a ring\nfrom plugin 'fakes' (tests)"


def test_the_page_of_a_workload_names_its_default_batch(fake_registry):
    title = str(component_page(fake_registry, "tiny").title)
    assert title.endswith("\nglobal batch where [strategy] names none: 64 samples")


def test_an_unknown_name_gets_the_nearest(fake_registry):
    with pytest.raises(ConfigError, match="did you mean 'switch'"):
        component_page(fake_registry, "swich")


@attrs.frozen(kw_only=True)
class Options:
    plain: int = option(3, doc="a number")
    delay_us: float = option(2.5, unit="us", doc="a time")
    name: str | None = option(None, doc="a text")
    on: bool = option(True, doc="a switch")
    off: bool = option(False, doc="another")
    table: dict[str, int] = option(attrs.Factory(dict), doc="a table")
    needed: float = option(unit="Gbps", doc="a bandwidth")


def test_defaults_are_written_as_toml_has_them():
    rows = {
        row["option"]: (row["type"], row["unit"], row["default"], row["meaning"])
        for row in option_rows(Options)
    }
    assert rows == {
        "plain": ("int", "", "3", "a number"),
        "delay_us": ("float", "us", "2.5", "a time"),
        "name": ("str | None", "", "none", "a text"),
        "on": ("bool", "", "true", "a switch"),
        "off": ("bool", "", "false", "another"),
        "table": ("dict[str, int]", "", "{}", "a table"),
        "needed": ("float", "Gbps", "required", "a bandwidth"),
    }


def test_the_trace_is_numbered_and_ends_with_whom_a_run_calls(fake_registry):
    lines = trace_lines(fake_registry)
    assert lines[0] == "  1. load plugin 'fakes' (tests)"
    assert [line[5:] for line in lines[-2:]] == [
        "sipml_run_started: a run calls no plugin",
        "sipml_run_finished: a run calls no plugin",
    ]
