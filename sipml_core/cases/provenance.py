"""What a result was made with: versions of everything that decides it, hashes of the files it read."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path

from sipml_core import __version__
from sipml_core.experiment import Experiment, components_of, files_of
from sipml_core.fields import sha256_of

#: Packages that decide numbers.
PACKAGES = ("numpy", "highspy", "networkx")


def versions(experiment: Experiment) -> dict[str, str]:
    """Return the versions of sipml, Python, packages that decide numbers, and distributions of components."""
    owners = _owners()
    modules = {type(component).__module__.partition(".")[0] for component in components_of(experiment)}
    distributions = {owners[module] for module in modules if module in owners}
    return {
        "sipml": __version__,
        "python": platform.python_version(),
        **package_versions(),
        **{name: _version(name) for name in sorted(distributions - {"sipml"})},
    }


@cache
def package_versions() -> dict[str, str]:
    """Return the versions of the packages that decide numbers."""
    return {name: _version(name) for name in PACKAGES}


@cache
def _owners() -> dict[str, str]:
    """The distribution that brings the plugin in each top-level package."""
    points = entry_points(group="sipml")
    # Entry points of one distribution share it, and its name is read from a file each time.
    names = {dist: dist.name for dist in {point.dist for point in points if point.dist}}
    return {
        point.value.partition(":")[0].partition(".")[0]: names[point.dist] for point in points if point.dist
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def hashes_of_files(experiment: Experiment) -> dict[str, str]:
    """Return the SHA-256 of each file that an option names, by its absolute name."""
    names = {name for component in components_of(experiment) for name in files_of(component)}
    return {name: sha256_of(Path(name).read_bytes()) for name in sorted(names) if Path(name).is_file()}
