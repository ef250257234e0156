"""The site has each page in one table of contents, and its check finds links that lead nowhere."""

import re

from scripts.check_site import broken
from scripts.page_blocks import ROOT

DOCS = ROOT / "docs"
#: Pages, and notebooks.
PAGES = (".md", ".ipynb")


def listed(text):
    """Return the pages in the tables of contents of a page, in order."""
    tables = re.findall(r"^```\{toctree\}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = [line for table in tables for line in table.splitlines()]
    return [line for line in lines if line and not line.startswith(":")]


def test_each_page_is_in_one_table_of_contents():
    named = listed((DOCS / "index.md").read_text(encoding="utf-8"))
    found = [
        path for name in named for kind in PAGES for path in sorted(DOCS.glob(f"{name}{kind}"))
    ]
    pages = {path for kind in PAGES for path in DOCS.rglob(f"*{kind}")} - {DOCS / "index.md"}
    assert len(pages) > 80
    assert sorted(found) == sorted(pages)


def test_links_that_lead_nowhere_are_found(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "a.html").write_text(
        '<p id="here"><a href="#here"></a><a href="#gone"></a><a href="folder/b.html#there"></a>'
        '<a href="folder/b.html#gone"></a><a href="c.html"></a><a href="https://example.org"></a>'
    )
    (tmp_path / "folder" / "b.html").write_text(
        '<h1 id="there"><a href="../a.html"></a><img src="../none.svg"><a href="../../x.html"></a>'
    )
    looked, wrong = broken(tmp_path)
    assert looked == 8
    assert sorted(wrong) == [
        "a.html: #gone",
        "a.html: c.html",
        "a.html: folder/b.html#gone",
        "folder/b.html: ../../x.html",
        "folder/b.html: ../none.svg",
    ]


def test_a_site_without_links_is_an_error(tmp_path):
    assert broken(tmp_path) == (0, [])
