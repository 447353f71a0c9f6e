"""Writes docs/gallery.md: every experiment of examples/, what it asks, and what it printed when recorded.

python docs/gallery.py            write it
"""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parent
EXAMPLES = DOCS.parent / "examples"
PAGE = DOCS / "gallery.md"

_HEAD = """<!-- Written by docs/gallery.py from examples/; run that instead of changing this. -->
# Gallery

*What does an experiment look like, and what comes out?*
Each of these is a file of `examples/`, run by `python -m sipml_core run FILE` (`sweep.toml` by `sweep`);
`python examples/run_all.py` runs them and compares what they print with what stands here.
"""


def experiments() -> list[Path]:
    """Return the experiment files of examples/ and of the packages in it."""
    found = [*EXAMPLES.glob("*.toml"), *EXAMPLES.glob("*/*.toml")]
    return sorted(path for path in found if path.name != "pyproject.toml")


def page() -> str:
    """Return the text of the gallery."""
    return "\n".join([_HEAD, *map(_entry, experiments())])


def _entry(path: Path) -> str:
    name = path.relative_to(EXAMPLES).as_posix()
    text = path.read_text(encoding="utf-8")
    title, told = _comment(text)
    parts = [f"## {title}", f"`examples/{name}`", told, f"```toml\n{_body(text)}\n```"]
    recorded = EXAMPLES / "recorded" / f"{name.replace('/', '-')}.txt"
    if recorded.exists():
        parts.append(f"```text\n{_table(recorded.read_text(encoding='utf-8'))}\n```")
    return "\n\n".join(part for part in parts if part) + "\n"


def _comment(text: str) -> tuple[str, str]:
    """Return the comment at the head of a file: up to its first colon, and the rest without commands.

    >>> _comment("# Two models: on four networks.\\n# More.\\n#\\n#   python -m x\\n\\ntitle = 1")
    ('Two models', 'On four networks. More.')
    """
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        if not line.startswith("#  "):
            lines.append(line.lstrip("# "))
    title, _, rest = " ".join(lines).strip().partition(": ")
    return title.removesuffix(":"), rest[:1].upper() + rest[1:]


def _body(text: str) -> str:
    """Return an experiment without the comment at its head."""
    return re.sub(r"\A(#.*\n)+\n*", "", text).strip()


def _table(text: str) -> str:
    """Return what was recorded, with plain letters for the frames of its tables."""
    lines = (re.sub("[┃│]", "|", line).strip() for line in text.splitlines() if line[:1] not in "┏└")
    return "\n".join(re.sub("[┡━╇┩]+", lambda rule: "-" * len(rule[0]), line) for line in lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
