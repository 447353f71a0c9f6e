"""Shared by every test: the bundled plugins alone, matplotlib without a display, C built with sanitizers."""

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from sipml_core.plugin import load

os.environ.setdefault("MPLBACKEND", "Agg")
# Worker processes of pytest are told the width of the terminal that it was started in.
os.environ.pop("COLUMNS", None)

# Results that tests keep are found by no other session; matplotlib's list of fonts stays where it is.
_STORE = tempfile.TemporaryDirectory(prefix="sipml-store-")
atexit.register(_STORE.cleanup)
os.environ.setdefault("MPLCONFIGDIR", str(Path.home() / ".cache" / "matplotlib"))
os.environ["XDG_CACHE_HOME"] = _STORE.name


def plugins_of(*, sipml):
    """Installed plugins that the distribution `sipml` brings, or those of everybody else."""
    return [point for point in entry_points(group="sipml") if (point.dist.name == "sipml") == sipml]


# What a stranger's plugin offers changes no test: commands and worker processes leave it out as well.
_DISABLED = [os.environ.get("SIPML_DISABLE_PLUGINS", ""), *(point.name for point in plugins_of(sipml=False))]
os.environ["SIPML_DISABLE_PLUGINS"] = ",".join(filter(None, _DISABLED))

STRICT = ["-std=c99", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off"]
#: What the C tests share.
HELPERS = Path(__file__).parent / "c"
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


@pytest.fixture(scope="session")
def registry():
    """What the bundled plugins offer, whatever else is installed."""
    return load(plugins_of(sipml=True))


@pytest.fixture(scope="session")
def sanitizing_compiler(tmp_path_factory):
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


@pytest.fixture(scope="session")
def run_sanitized(sanitizing_compiler, tmp_path_factory):
    """run_sanitized(sources, test, *arguments): compile a C test without a warning, together with the sources
    of a folder (but not with what cffi wrote there, _*.c), and run it: no read or write out of bounds, no
    leak, no undefined behaviour, no failed expectation."""

    @functools.cache
    def built(sources, test):
        programme = tmp_path_factory.mktemp("c") / test.stem
        files = [str(path) for path in (*sorted(sources.glob("[!_]*.c")), test)]
        command = [
            sanitizing_compiler,
            *STRICT,
            *SANITIZE,
            f"-I{sources}",
            f"-I{HELPERS}",
            *files,
            "-lm",
            "-o",
            str(programme),
        ]
        compiled = subprocess.run(command, capture_output=True, text=True)
        assert compiled.returncode == 0, compiled.stderr
        return programme

    def run(sources, test, *arguments):
        ran = subprocess.run([built(sources, test), *arguments], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran

    return run
