"""The C sources, compiled without a warning, under the address and undefined-behaviour sanitizers."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

#: The sources: an installed package has the extension only.
HOME = Path(__file__).resolve().parents[3] / "plugins" / "sipml_ocs"
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


def test_ocs_under_sanitizers(compiler, tmp_path):
    """No read or write out of bounds, no leak, no undefined behaviour, no failed expectation."""
    sources = [str(path) for path in sorted(HOME.glob("[!_]*.c"))]
    test = Path(__file__).parent / "c" / "test_ocs.c"
    command = [
        compiler,
        *STRICT,
        *SANITIZE,
        f"-I{HOME}",
        *sources,
        str(test),
        "-lm",
        "-o",
        str(tmp_path / "test"),
    ]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    ran = subprocess.run([tmp_path / "test"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
