"""Placers that come with the core."""

from __future__ import annotations

from sipml_core.parallel.algorithm1 import Algorithm1
from sipml_core.parallel.aligned import Aligned

PLACERS = (Algorithm1, Aligned)
