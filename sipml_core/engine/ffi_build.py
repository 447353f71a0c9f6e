"""Builds the extension module ``sipml_core.engine._engine``.

setuptools takes `ffibuilder`; run as a script, from anywhere, this compiles next to the package.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cffi_build import Extension

EXTENSION = Extension(module="sipml_core.engine._engine", package="sipml_core/engine", header="csrc/engine.h")

ffibuilder = EXTENSION.builder()

if __name__ == "__main__":
    print(EXTENSION.compile_in_place())
