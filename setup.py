"""Compiles the C modules; everything else is in setup.cfg. (cffi_modules works only from here.)"""

from setuptools import setup
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


setup(
    cffi_modules=[f"{home}/ffi_build.py:ffibuilder" for home in HOMES],
    cmdclass={"build_ext": BuildWithCompiler},
)
