"""The C sources, compiled without a warning, under the address and undefined-behaviour sanitizers."""

from pathlib import Path

#: The sources: an installed package has the extension only.
HOME = Path(__file__).resolve().parents[3] / "sipml_core" / "engine" / "csrc"
TESTS = Path(__file__).parent / "c"


def test_engine_under_sanitizers(run_sanitized):
    """No read or write out of bounds, no leak, no undefined behaviour, no failed expectation."""
    ran = run_sanitized(HOME, TESTS / "test_engine.c")
    assert ran.returncode == 0, ran.stdout + ran.stderr
