"""The page and the example say what the program does."""

import doctest
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_snippet_of_the_page_runs():
    """Each ``>>>`` of docs/hwsim.md prints what the page shows."""
    page = (ROOT / "docs" / "hwsim.md").read_text(encoding="utf-8")
    snippets = re.findall(r"```pycon\n(.*?)```", page, flags=re.DOTALL)
    assert len(snippets) >= 4
    test = doctest.DocTestParser().get_doctest("\n".join(snippets), {}, "hwsim.md", None, 0)
    complaints = []
    results = doctest.DocTestRunner().run(test, out=complaints.append)
    assert results.failed == 0, "".join(complaints)


def test_example_prints_what_was_recorded():
    """examples/hwsim_retune.py, compared to the letter."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "hwsim_retune.py")],
        capture_output=True,
        text=True,
        check=True,
    )
    recorded = Path(__file__).parent / "recorded" / "hwsim_retune.txt"
    assert done.stdout == recorded.read_text(encoding="utf-8")
