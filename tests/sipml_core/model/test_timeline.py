"""Accounts of a run."""

import numpy as np

from sipml_core.model.timeline import Timeline


def timeline(compute_us, exposed_us, dark_us, total_us):
    rows = {"compute_us": compute_us, "exposed_us": exposed_us, "dark_us": dark_us}
    return Timeline(
        start_us=[], end_us=[], snapshot_us=[total_us], link_bytes=[], link_busy_us=[], events=0,
        **{name: np.array([[value]]) for name, value in rows.items()},
    )  # fmt: skip


def test_idle_is_the_rest():
    """10 us, of which 4 are computed, 3 communicated and 1 dark."""
    assert timeline(4.0, 3.0, 1.0, 10.0).idle_us.tolist() == [[2.0]]


def test_what_rounding_leaves_is_no_idle_time():
    """0.1 + 0.2 is 0.30000000000000004, in either order of the subtraction."""
    assert timeline(0.1, 0.2, 0.0, 0.1 + 0.2 + 5e-17).idle_us.tolist() == [[0.0]]
    assert timeline(0.7, 0.1, 0.2, 1.0000000000000002).idle_us.tolist() == [[0.0]]
    assert timeline(0.1, 0.2, 0.0, 0.3).idle_us.tolist() == [[0.0]]
