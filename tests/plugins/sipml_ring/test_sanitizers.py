"""The C sources, compiled without a warning, under the address and undefined-behaviour sanitizers."""

import functools
import os
import shutil
import subprocess
from pathlib import Path

import pytest

#: The sources: an installed package has the extension only.
HOME = Path(__file__).resolve().parents[3] / "plugins" / "sipml_ring" / "csrc"
STRICT = ["-std=c99", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off"]
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


@pytest.fixture(scope="module")
def compiler(tmp_path_factory):
    """A C compiler whose sanitizers work here."""
    name = os.environ.get("CC", "cc").split()[0]
    if shutil.which(name) is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("probe")
    (folder / "probe.c").write_text("int main(void) { return 0; }\n")
    probe = [name, *SANITIZE, str(folder / "probe.c"), "-o", str(folder / "probe")]
    if subprocess.run(probe, capture_output=True).returncode or subprocess.run([folder / "probe"]).returncode:
        pytest.skip("no sanitizers")
    return name


@pytest.fixture(scope="module")
def build(compiler, tmp_path_factory):
    """Compiles a test with the sources, and returns the programme."""

    @functools.cache
    def compiled(name):
        sources = [*sorted(HOME.glob("*.c")), Path(__file__).parent / "c" / f"{name}.c"]
        programme = tmp_path_factory.mktemp("c") / name
        command = [compiler, *STRICT, *SANITIZE, f"-I{HOME}", *map(str, sources), "-lm", "-o", str(programme)]
        built = subprocess.run(command, capture_output=True, text=True)
        assert built.returncode == 0, built.stderr
        return programme

    return compiled


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        pytest.param("test_ring", [], id="continuous"),
        pytest.param("test_ring", ["converted"], id="converted"),
        pytest.param("test_refusals", [], id="refusals"),
    ],
)
def test_ring_under_sanitizers(build, name, arguments):
    """No read or write out of bounds, no leak, no undefined behaviour, no failed expectation."""
    ran = subprocess.run([build(name), *arguments], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
