"""The pages of the documentation, offline: shipped in the wheel as they are in the repository.

``python -m headgate docs`` lists the pages, ``python -m headgate docs functions`` prints one.
"""

from __future__ import annotations

import sys
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from headgate._matches import close_matches

if TYPE_CHECKING:
    from collections.abc import Sequence

#: A page of the web site that shows a file from elsewhere has no text of its own.
_SHOWS_ANOTHER: Final = "```{include}"


def pages() -> dict[str, str]:
    """Return the texts of the pages by their names, sorted."""
    # In the repository this is a link to the folder docs, in a wheel a folder.
    folder = files("headgate").joinpath("docs")
    texts = {
        path.name.removesuffix(".md"): path.read_text(encoding="utf-8")
        for path in folder.iterdir()
        if path.name.endswith(".md")
    }
    return {name: text for name, text in sorted(texts.items()) if _SHOWS_ANOTHER not in text}


def page(name: str) -> str:
    """Return a page in Markdown.

    Args:
        name: ``"functions"``, ``"functions.md"`` or ``"docs/functions.md"``.

    Raises:
        LookupError: there is no such page; the text suggests close ones.
    """
    texts, short = pages(), name.strip().removeprefix("docs/").removesuffix(".md")
    if short in texts:
        return texts[short]
    lines = [f"there is no page {name!r}"]
    lines += [f"  close   {title}" for title in close_matches(short, texts)]
    lines.append("  more    python -m headgate docs")
    raise LookupError("\n".join(lines))


def main(wanted: Sequence[str]) -> int:
    """Print pages, or the names and titles of all; return the exit code (2: unknown)."""
    if not wanted:
        for name, text in pages().items():
            print(f"{name:<20}  {text.splitlines()[0].removeprefix('# ')}")
        return 0
    status = 0
    for name in wanted:
        try:
            print(page(name).rstrip("\n"))
        except LookupError as error:
            print(error.args[0], file=sys.stderr)
            status = 2
    return status
