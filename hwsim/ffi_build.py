"""Builds the extension module ``hwsim._hwsim``.

setuptools finds `ffibuilder` through ``cffi_modules``; run as a script this file compiles next to the
package, whatever the current directory.
"""

import re
import shutil
import sys
import tempfile
from pathlib import Path

from cffi import FFI

PACKAGE = Path(__file__).resolve().parent
SOURCES = ("ring.c", "control.c", "bank.c", "advance.c")
FLAGS = [] if sys.platform == "win32" else ["-std=c99", "-O3", "-ffp-contract=off", "-Wall", "-Wextra"]


def declarations() -> str:
    """Return the contract in ``hwsim.h`` without its preprocessor lines, which is the C that cffi reads."""
    header = (PACKAGE / "csrc" / "hwsim.h").read_text(encoding="utf-8")
    return re.sub(r"^#.*$", "", header, flags=re.MULTILINE)


def make(root: str) -> FFI:
    """Return a builder whose source paths start with `root`: '' for setuptools, absolute for a script."""
    builder = FFI()
    builder.cdef(declarations())
    builder.set_source(
        "hwsim._hwsim",
        '#include "hwsim.h"',
        sources=[f"{root}hwsim/csrc/{name}" for name in SOURCES],
        include_dirs=[f"{root}hwsim/csrc"],
        extra_compile_args=FLAGS,
        py_limited_api=False,  # one file name for pip and this script: no old build hides a new
    )
    return builder


def build_in_place() -> Path:
    """Compile in a temporary folder, put the module beside this file and return its path."""
    with tempfile.TemporaryDirectory() as folder:
        built = Path(make(f"{PACKAGE.parent.as_posix()}/").compile(tmpdir=folder))
        return Path(shutil.copy2(built, PACKAGE / built.name))


ffibuilder = make("")

if __name__ == "__main__":
    print(build_in_place())
