"""Builds the extension module ``sipml_ring._ring``.

setuptools takes `ffibuilder`; run as a script, from anywhere, this compiles next to the package.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cffi_build import Extension

EXTENSION = Extension(module="sipml_ring._ring", package="plugins/sipml_ring", header="csrc/ring.h")

ffibuilder = EXTENSION.builder()

if __name__ == "__main__":
    print(EXTENSION.compile_in_place())
