"""Builds the extension module ``hwsim._hwsim``.

setuptools takes `ffibuilder`; run as a script, from anywhere, this compiles next to the package.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cffi_build import Extension

EXTENSION = Extension(module="hwsim._hwsim", package="hwsim", header="csrc/hwsim.h")

ffibuilder = EXTENSION.builder()

if __name__ == "__main__":
    print(EXTENSION.compile_in_place())
