"""The C sources, compiled without a warning, under the address and undefined-behaviour sanitizers."""

from pathlib import Path

import pytest

#: The sources: an installed package has the extension only.
HOME = Path(__file__).resolve().parents[3] / "plugins" / "sipml_ring" / "csrc"
TESTS = Path(__file__).parent / "c"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        pytest.param("test_ring", [], id="continuous", marks=pytest.mark.slow),
        pytest.param("test_ring", ["converted"], id="converted"),
        pytest.param("test_refusals", [], id="refusals", marks=pytest.mark.slow),
        pytest.param("test_cut", [], id="cut", marks=pytest.mark.slow),
        pytest.param("test_climb", [], id="climb", marks=pytest.mark.slow),
        pytest.param("fuzz_ring", [], id="fuzz", marks=pytest.mark.slow),
    ],
)
def test_ring_under_sanitizers(run_sanitized, name, arguments):
    run_sanitized(HOME, TESTS / f"{name}.c", *arguments)
