"""Hooks of MkDocs: the README is the home page, and links that leave docs/ become plain text.

A link out of docs/ must lead to a file of the repository, or the build ends.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent

#: [text](target#anchor), where the target is a file and not an address.
_LINK = re.compile(r"\[([^\]]*)\]\((?![a-z]+:)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, *, config: Any) -> Files:
    """Add the README as index.md, its links seen from docs/."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    home = _LINK.sub(lambda found: _seen_from(DOCS, ROOT, found), text)
    files.append(File.generated(config, "index.md", content=home))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Return a page without links to what is not part of the site."""
    folder = (DOCS / page.file.src_uri).parent
    return _LINK.sub(lambda found: _seen_from(folder, folder, found), markdown)


def _seen_from(page_folder: Path, link_folder: Path, found: re.Match[str]) -> str:
    """Return a link written for `link_folder` as a page in `page_folder` writes it."""
    text, target, anchor = found[1], found[2], found[3] or ""
    path = (link_folder / target).resolve()
    if path.is_relative_to(DOCS) and path.suffix == ".md":
        return f"[{text}]({Path(os.path.relpath(path, page_folder)).as_posix()}{anchor})"
    if not path.exists():
        raise PluginError(f"a link leads to {target}, which is not in the repository")
    return text
