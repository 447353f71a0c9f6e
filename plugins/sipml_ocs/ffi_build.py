"""Builds the extension module ``sipml_ocs._ocs``.

setuptools finds `ffibuilder` through ``cffi_modules`` and runs this from the repository root; run as a
script, from anywhere, this file compiles next to the package.
"""

import re
import shutil
import sys
import tempfile
from pathlib import Path

from cffi import FFI

PACKAGE = Path(__file__).resolve().parent
SOURCES = ("circuits.c", "colour.c")
FLAGS = [] if sys.platform == "win32" else ["-std=c99", "-O3", "-Wall", "-Wextra"]


def declarations() -> str:
    """What cffi needs of ``ocs.h``: the header without its preprocessor lines."""
    header = (PACKAGE / "ocs.h").read_text(encoding="utf-8")
    return re.sub(r"^#.*$", "", header, flags=re.MULTILINE)


def make(home: str) -> FFI:
    """A builder that finds the sources in `home`: relative for setuptools, absolute for a script."""
    builder = FFI()
    builder.cdef(declarations())
    builder.set_source(
        "sipml_ocs._ocs",
        '#include "ocs.h"',
        sources=[f"{home}/{name}" for name in SOURCES],
        include_dirs=[home],
        extra_compile_args=FLAGS,
        py_limited_api=False,  # one file name for pip and this script: no old build hides a new
    )
    return builder


def build_in_place() -> Path:
    """Compile in a temporary folder and put the module beside this file."""
    with tempfile.TemporaryDirectory() as folder:
        built = Path(make(PACKAGE.as_posix()).compile(tmpdir=folder))
        return Path(shutil.copy2(built, PACKAGE / built.name))


ffibuilder = make("plugins/sipml_ocs")

if __name__ == "__main__":
    print(build_in_place())
