"""The C sources, compiled without a warning, under the address and undefined-behaviour sanitizers."""

from pathlib import Path

import pytest

#: The sources: an installed package has the extension only.
HOME = Path(__file__).resolve().parents[3] / "plugins" / "sipml_ocs" / "csrc"
TESTS = Path(__file__).parent / "c"


@pytest.mark.parametrize("name", ["test_ocs", "fuzz_ocs"])
def test_ocs_under_sanitizers(run_sanitized, name):
    run_sanitized(HOME, TESTS / f"{name}.c")
