from setuptools import setup
setup(cffi_modules=[f"{home}/ffi_build.py:ffibuilder" for home in ("sipml_core/engine", "plugins/sipml_ring", "plugins/sipml_ocs", "hwsim")])  # fmt: skip
