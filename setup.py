"""Compiles the C modules, and installs in place; the rest is in setup.cfg. (cffi_modules works only here.)"""

from pathlib import Path

from setuptools import setup
from setuptools.command import editable_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

HOMES = ("sipml_core/engine", "plugins/sipml_ring", "plugins/sipml_ocs", "hwsim")


class BuildWithCompiler(build_ext):
    """Says what is missing instead of where a subprocess failed."""

    def build_extensions(self):
        try:
            super().build_extensions()
        except (BaseError, CCompilerError, OSError) as error:
            raise SystemExit(
                f"sipml: the C modules could not be compiled ({error}); it needs a C compiler: "
                "install gcc or clang (Debian: apt install build-essential; macOS: xcode-select --install)"
            ) from None


class EditableByPath(editable_wheel.editable_wheel):
    """`pip install -e .` puts both folders that hold packages on the path, where mypy and editors look.

    What setuptools does instead for packages in two folders is a finder that only a running Python asks.
    """

    def _select_strategy(self, name, tag, build_lib):
        by_path = getattr(editable_wheel, "_StaticPth", None)
        if by_path is None:
            return super()._select_strategy(name, tag, build_lib)
        root = Path(__file__).parent.resolve()
        return by_path(self.distribution, name, [root, root / "plugins"])


setup(
    cffi_modules=[f"{home}/ffi_build.py:ffibuilder" for home in HOMES],
    cmdclass={"build_ext": BuildWithCompiler, "editable_wheel": EditableByPath},
)
