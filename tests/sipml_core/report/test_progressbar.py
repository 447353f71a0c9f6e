"""Progress on a terminal: labels from users are drawn as they are."""

import io

import pytest
from rich.console import Console

from sipml_core.report import progressbar


@pytest.mark.parametrize("label", ["net [a]", "flat [/fast]", "[bold]x"])
def test_a_label_is_never_markup(monkeypatch, label):
    drawn = io.StringIO()
    monkeypatch.setattr(
        progressbar,
        "Console",
        lambda **_: Console(file=drawn, force_terminal=True, width=80, color_system=None),
    )
    with progressbar.progress_bar() as progress:
        progress.named(label).at(0.5)
    assert label in drawn.getvalue()
