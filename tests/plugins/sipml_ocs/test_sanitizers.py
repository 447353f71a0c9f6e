"""The C sources, compiled without a warning, under the address and undefined-behaviour sanitizers."""

from pathlib import Path

#: The sources: an installed package has the extension only.
HOME = Path(__file__).resolve().parents[3] / "plugins" / "sipml_ocs" / "csrc"
TESTS = Path(__file__).parent / "c"


def test_ocs_under_sanitizers(run_sanitized):
    run_sanitized(HOME, TESTS / "test_ocs.c")
