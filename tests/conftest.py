"""Shared by every test: matplotlib draws without a display."""

import os

os.environ.setdefault("MPLBACKEND", "Agg")
