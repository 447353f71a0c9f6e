"""Type checkers and editors find the packages of this distribution, and know that they are typed."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGES = (
    "sipml_core", "sipml_ring", "sipml_ocs", "sipml_elect_flat", "sipml_elect_cluster", "sipml_graph",
    "sipml_electrical", "sipml_torus", "sipml_photonic", "hwsim",
)  # fmt: skip


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_says_that_it_is_typed(package):
    assert Path(importlib.util.find_spec(package).origin).with_name("py.typed").is_file()


@pytest.mark.slow
def test_mypy_finds_core_and_plugins_from_anywhere(tmp_path):
    """After `pip install -e .` as well as from a wheel: a wrong use of either is what it complains of."""
    pytest.importorskip("mypy")
    (tmp_path / "use.py").write_text(
        "import sipml_core as sipml\n"
        "from sipml_ring.topology import SipRing\n"
        "a: int = sipml.load('x.toml')\n"
        "b: int = SipRing.name\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path), "use.py"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    complaints = [line.split(": error: ")[0] for line in done.stdout.splitlines() if ": error: " in line]
    assert complaints == ["use.py:3", "use.py:4"], done.stdout
