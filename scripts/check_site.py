"""Follows each link inside a built site to its file and its anchor, without a network.

    check_site.py dist/docs

The exit status is 1 if a link leads nowhere, or if there is none. Decision: ADR 0042, in docs/adr.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: Attributes of an element that name another file.
_LINKS = {"href", "src"}
#: Files of Sphinx and its theme that hold no page.
_PARTS = ("_static", "_sources")


class Page(HTMLParser):
    """The links and the anchors of one HTML file."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif name in _LINKS and value:
                self.links.append(value)


def broken(site: Path) -> tuple[int, list[str]]:
    """Return the number of links inside a site, and those that lead nowhere."""
    site = site.resolve()
    paths = [path for path in site.rglob("*.html") if path.relative_to(site).parts[0] not in _PARTS]
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in paths}
    looked, wrong = 0, []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            looked += 1
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            is_there = target.is_file() and target.is_relative_to(site)
            if not is_there or (anchor and target in pages and anchor not in pages[target].anchors):
                wrong.append(f"{path.relative_to(site)}: {link}")
    return looked, wrong


def main() -> int:
    """Check the site that the command line names; return the exit status."""
    looked, wrong = broken(Path(sys.argv[1]))
    print(*wrong, f"{looked} links, {len(wrong)} lead nowhere", sep="\n")
    return 1 if wrong or not looked else 0


if __name__ == "__main__":
    sys.exit(main())
