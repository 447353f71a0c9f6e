"""Figures, the same bytes for the same data."""

from __future__ import annotations

import importlib.util
import io
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sipml_core.errors import ConfigError


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def new_figure(width_in: float, height_in: float) -> Any:
    """An empty matplotlib figure, off screen.

    Raises `ConfigError` with the remedy if matplotlib is not installed.
    """
    try:
        with _no_backend():
            from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError("figures need matplotlib: python -m pip install matplotlib") from None
    return Figure(figsize=(width_in, height_in), layout="constrained")


@contextmanager
def _no_backend() -> Iterator[None]:
    """Keep MPLBACKEND from matplotlib: a notebook's is not installed everywhere, and no window is opened."""
    backend = os.environ.pop("MPLBACKEND", None)
    try:
        yield
    finally:
        if backend is not None:
            os.environ["MPLBACKEND"] = backend


#: What of a file would change from one time to the next, by kind: left out.
_UNDATED = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "ModDate": None, "Creator": None, "Producer": None},
}


def figure_bytes(figure: Any, kind: str = "png") -> bytes:
    """The figure as PNG, SVG or PDF, without dates, random ids or versions in it."""
    import matplotlib

    buffer = io.BytesIO()
    fixed: Any = {"svg.hashsalt": "sipml", "svg.fonttype": "none", "pdf.fonttype": 42}
    with matplotlib.rc_context(fixed), warnings.catch_warnings():
        # A letter of a label that the font does not have is an empty box, and no warning with our line in it.
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        figure.savefig(buffer, format=kind, dpi=150, metadata=_UNDATED[kind])
    return buffer.getvalue()
