"""Installs sipml and the third-party examples as a stranger would, and runs the examples' own tests.

    python tests/stranger.py FOLDER    in an environment of its own: packages are installed into it

Wheels of everything, dependencies included, go to a folder that serves as the only index; the sources
are copied first, so that nothing is built in, or imported from, the working tree.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ("third_party_topology", "third_party_scheduler", "third_party_gpu")
DISTRIBUTIONS = ("sipml-torus-rotor", "sipml-hottest-first", "sipml-spec-sheet")
_LEFT_OUT = shutil.ignore_patterns(
    ".*", "build", "dist", "results", "*.egg-info", "__pycache__", "*.so", "*.o", "benchmarks"
)


def python(*arguments: str | Path, cwd: Path) -> None:
    """Run this Python; its failure is ours."""
    subprocess.run([sys.executable, *map(str, arguments)], cwd=cwd, check=True)


def main(folder: Path) -> None:
    source, index = folder / "source", folder / "index"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT, source, ignore=_LEFT_OUT)
    packages = [source, *(source / "examples" / example for example in EXAMPLES)]
    python("-m", "pip", "wheel", "-q", "-w", index, *(f"{package}[test]" for package in packages), cwd=folder)
    wanted = [f"{distribution}[test]" for distribution in DISTRIBUTIONS]
    python("-m", "pip", "install", "-q", "--no-index", "--find-links", index, *wanted, cwd=folder)
    for example in EXAMPLES:
        home = folder / example
        shutil.copytree(ROOT / "examples" / example / "tests", home / "tests", ignore=_LEFT_OUT)
        python("-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "tests", cwd=home)
    experiment = ROOT / "examples" / "third_party_topology" / "torus_rotor.toml"
    python("-m", "sipml_core", "plugins", cwd=folder)
    python("-m", "sipml_core", "run", experiment, cwd=folder)
    print("strangers are welcome")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
