"""The C tests of the bank, built with sanitizers, and again under valgrind; and random calls."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "c"
CSRC = Path(__file__).resolve().parents[2] / "hwsim" / "csrc"
COMPILER = shutil.which(os.environ.get("CC", "cc"))


def _make(target: str, out: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "-C", str(HERE), f"OUT={out}", target], capture_output=True, text=True, timeout=300
    )


needs_make = pytest.mark.skipif(
    COMPILER is None or shutil.which("make") is None, reason="no compiler or make"
)


@needs_make
@pytest.mark.usefixtures("sanitizing_compiler")
def test_laws_hold_under_sanitizers(tmp_path):
    """The bank neither breaks its contract nor touches memory that is not its own."""
    done = _make("run", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all laws hold" in done.stdout


@needs_make
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="no valgrind")
def test_laws_hold_under_valgrind(tmp_path):
    """No leak and no use of an unset value."""
    done = _make("valgrind", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("seed", ["1", "2"])
def test_random_calls_break_nothing(run_sanitized, seed):
    """Banks of random and of impossible parameters, 40 random calls each: what is refused changes nothing,
    powers stay within the heaters' limits, drop + through <= 1, energy only grows, no sanitizer complains."""
    done = run_sanitized(CSRC, HERE / "fuzz_bank.c", seed, "1500")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken laws" in done.stdout
