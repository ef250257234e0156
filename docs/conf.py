"""Sphinx: ``make docs`` builds dist/docs with the packages of the extra ``docs``. Decision: ADR 0042."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"

project = "Headgate"
copyright = "the authors of Headgate"  # noqa: A001 - Sphinx reads this name
_MANIFEST = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))
release = _MANIFEST["workspace"]["package"]["version"]

# myst_nb reads Markdown by myst_parser, and notebooks with the outputs that they have.
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 3
nb_execution_mode = "off"
# Links are left to scripts/check_site.py, which follows those of the built site. A type `bytes` in a signature is an
# ambiguous reference to Sphinx, as classes have attributes of this name.
suppress_warnings = ["myst.xref_missing", "ref.python"]
# A function, method or module that a docstring names must be in the reference; types of a signature need not.
nitpicky = True
nitpick_ignore_regex = [("py:(class|exc|obj)", ".*")]
# Light or dark as the system has it. Without it the theme logs a warning in each browser.
html_context = {"default_mode": "auto"}
html_theme = "pydata_sphinx_theme"
html_theme_options = {"show_prev_next": False}
autodoc_member_order = "bysource"
autodoc_typehints = "description"
# An attribute is documented by its class, so it needs no entry of its own.
napoleon_use_ivar = True

#: Files that are pages of the site by an include.
INCLUDED = {
    ROOT / "ARCHITECTURE.md": DOCS / "architecture.md",
    ROOT / "README.md": DOCS / "index.md",
    ROOT / "SAFETY.md": DOCS / "safety.md",
    ROOT / "SECURITY.md": DOCS / "safety.md",
    DOCS / "adr": DOCS / "adr" / "README.md",
    **dict.fromkeys(ROOT.glob("python/headgate/catalogue/pages/*.md"), DOCS / "errors.md"),
}
_LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def with_links(text, source, page):
    """Return the Markdown of a file with the links that a page of the site needs."""

    def link(found):
        words, target, anchor = found.groups("")
        path = (source.parent / target).resolve()
        path = INCLUDED.get(path, path)
        if path.is_dir():  # a folder of code, which the site does not have
            return words
        if not path.exists():
            return found[0]
        return f"[{words}]({os.path.relpath(path, page.parent)}{anchor})"

    return _LINK.sub(link, text)


def setup(app):
    """Adapt the links of pages, and of the files that they include."""

    def read(_, name, content):
        page = DOCS / f"{name}.md"
        content[0] = with_links(content[0], page, page)

    def include(_, path, name, content):
        content[0] = with_links(content[0], DOCS / path, DOCS / f"{name}.md")

    app.connect("source-read", read)
    app.connect("include-read", include)
