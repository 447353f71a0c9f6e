"""Builds `sipml_core.engine._engine`. Run as a script, it compiles next to the package.

The declarations are read from `csrc/engine.h`, so that the header stays the one contract.
"""

from pathlib import Path

from cffi import FFI

CSRC = Path(__file__).resolve().parent / "csrc"
ROOT = CSRC.parents[2]
SOURCES = (
    "engine.c",
    "build.c",
    "groups.c",
    "rates.c",
    "lows.c",
    "heap.c",
    "ready.c",
    "accounts.c",
    "path.c",
    "watch.c",
)
#: No fused multiply-add: the same bytes on every machine.
FLAGS = ["-std=c99", "-O3", "-ffp-contract=off"]

_header = (CSRC / "engine.h").read_text(encoding="utf-8")
_home = CSRC.relative_to(ROOT).as_posix()

ffibuilder = FFI()
ffibuilder.cdef("\n".join(line for line in _header.splitlines() if not line.startswith("#")))
ffibuilder.set_source(
    "sipml_core.engine._engine",
    '#include "engine.h"',
    sources=[f"{_home}/{name}" for name in SOURCES],
    depends=[f"{_home}/engine.h", f"{_home}/state.h"],
    include_dirs=[_home],
    extra_compile_args=FLAGS,
    py_limited_api=False,  # one file name, whether pip or this script compiles: no old build hides a new one
)

if __name__ == "__main__":
    ffibuilder.compile(tmpdir=str(ROOT), verbose=True)
