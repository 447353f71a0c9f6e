"""Runs every example and compares what it prints with what was recorded.

    python examples/run_all.py              run and compare
    python examples/run_all.py --record     run and record

Third-party packages are installed beside, not into, this environment, and their own tests run too.
"""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
RECORDED = HERE / "recorded"


def python(*arguments: str | Path, cwd: Path, site: Path | None = None) -> str:
    """What this Python prints on stdout; a failure ends the program with what it said."""
    environment = {**os.environ, "COLUMNS": "160", "NO_COLOR": "1"}
    if site is not None:
        environment["PYTHONPATH"] = str(site)
    done = subprocess.run(
        [sys.executable, *map(str, arguments)], cwd=cwd, env=environment, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, arguments))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def outputs(folder: Path) -> dict[str, str]:
    """Output of each example, by name; as many run at once as there are processors, up to four."""
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        running: dict[str, Future[str]] = {}
        for experiment in sorted(HERE.glob("*.toml")):
            command = ["sweep", "--no-picture"] if experiment.name == "sweep.toml" else ["run"]
            running[experiment.name] = pool.submit(
                python, "-m", "sipml_core", *command, experiment, cwd=folder
            )
        for script in sorted(HERE.glob("*.py")):
            if script.name != Path(__file__).name:
                running[script.name] = pool.submit(python, script, cwd=folder)
        printed = {name: run.result() for name, run in running.items()}
        for package in sorted(path.parent for path in HERE.glob("*/pyproject.toml")):
            printed |= package_outputs(package, folder)
    return printed


def package_outputs(package: Path, folder: Path) -> dict[str, str]:
    """Output of the examples of a third-party package, whose own tests run first."""
    site = folder / f"site-{package.name}"
    python("-m", "pip", "install", "-q", "--no-deps", "--target", site, package, cwd=folder)
    python("-m", "pytest", "-q", "-p", "no:cacheprovider", package / "tests", cwd=folder, site=site)
    return {
        f"{package.name}-{experiment.name}": python(
            "-m", "sipml_core", "run", experiment, cwd=folder, site=site
        )
        for experiment in sorted(package.glob("*.toml"))
        if experiment.name != "pyproject.toml"
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        printed = outputs(Path(folder))
    differences = []
    for name, text in printed.items():
        recorded = RECORDED / f"{name}.txt"
        if "--record" in sys.argv:
            recorded.write_text(text)
        elif not recorded.exists() or recorded.read_text() != text:
            before = recorded.read_text() if recorded.exists() else ""
            diff = difflib.unified_diff(
                before.splitlines(), text.splitlines(), "recorded", "now", lineterm=""
            )
            differences.append("\n".join([name, *diff]))
        print(f"{name}: ran")
    if differences:
        sys.exit("\n\n".join(["what some examples print has changed (--record accepts it):", *differences]))


if __name__ == "__main__":
    main()
