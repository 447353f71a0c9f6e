"""Builds the extension module ``sipml_ring._ring``.

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
SOURCES = ("allocate.c", "check.c", "colour.c", "fill.c", "keep.c", "net.c", "plan.c", "rank.c")
HEADERS = ("net.h", "ring.h")
#: No fused multiply-add: the same plan on every machine.
FLAGS = (
    []
    if sys.platform == "win32"
    else ["-std=c99", "-O3", "-ffp-contract=off", "-fvisibility=hidden", "-Wall", "-Wextra"]
)


def declarations() -> str:
    """What cffi needs of ``ring.h``: the header without its preprocessor lines."""
    header = (PACKAGE / "csrc" / "ring.h").read_text(encoding="utf-8")
    return re.sub(r"^#.*$", "", header, flags=re.MULTILINE)


def make(home: str) -> FFI:
    """A builder that finds the sources in `home`: relative for setuptools, absolute for a script."""
    builder = FFI()
    builder.cdef(declarations())
    builder.set_source(
        "sipml_ring._ring",
        '#include "ring.h"',
        sources=[f"{home}/{name}" for name in SOURCES],
        depends=[f"{home}/{name}" for name in HEADERS],
        include_dirs=[home],
        extra_compile_args=FLAGS,
    )
    return builder


def build_in_place() -> Path:
    """Compile in a temporary folder and put the module beside this file."""
    with tempfile.TemporaryDirectory() as folder:
        built = Path(make((PACKAGE / "csrc").as_posix()).compile(tmpdir=folder))
        return Path(shutil.copy2(built, PACKAGE / built.name))


ffibuilder = make("plugins/sipml_ring/csrc")

if __name__ == "__main__":
    print(build_in_place())
