"""Builds the C modules: one set of flags for all, declarations read from the header.

For building only: nothing installs it. Every ``ffi_build.py`` puts the root of the project on
``sys.path``, where pip leaves it out, and describes its module with `Extension`.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cffi import FFI

ROOT = Path(__file__).resolve().parent
#: No fused multiply-add: the same results on every machine.
FLAGS = ["-std=c99", "-O3", "-ffp-contract=off", "-fvisibility=hidden", "-Wall", "-Wextra"]


@dataclass(frozen=True, kw_only=True)
class Extension:
    """A C module: the header that is its contract, and every ``.c`` file beside it."""

    #: Import name, such as "sipml_ring._ring".
    module: str
    #: Folder of the Python package, from the root of the project.
    package: str
    #: Header, from the folder of the package.
    header: str

    @property
    def declarations(self) -> str:
        """The header without its preprocessor lines, which is the C that cffi reads."""
        text = (ROOT / self.package / self.header).read_text(encoding="utf-8")
        return re.sub(r"^#.*$", "", text, flags=re.MULTILINE)

    def builder(self, root: str = "") -> FFI:
        """A cffi builder whose paths start with `root`: "" for setuptools, which wants relative ones."""
        header = ROOT / self.package / self.header
        home = f"{root}{header.parent.relative_to(ROOT).as_posix()}"
        files = sorted(path.name for path in header.parent.glob("[!_]*.[ch]"))  # cffi's own start with _
        ffi = FFI()
        ffi.cdef(self.declarations)
        ffi.set_source(
            self.module,
            f'#include "{header.name}"',
            sources=[f"{home}/{name}" for name in files if name.endswith(".c")],
            depends=[f"{home}/{name}" for name in files],
            include_dirs=[home],
            extra_compile_args=[] if sys.platform == "win32" else FLAGS,
            py_limited_api=False,  # one file name for pip and for scripts: no old build hides a new one
        )
        return ffi

    def compile_in_place(self) -> Path:
        """Compile in a temporary folder, put the module into its package and return where it is."""
        with tempfile.TemporaryDirectory() as folder:
            built = Path(self.builder(f"{ROOT.as_posix()}/").compile(tmpdir=folder))
            return Path(shutil.copy2(built, ROOT / self.package / built.name))
