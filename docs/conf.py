"""Sphinx: `sphinx-build -W docs dist/docs`, with the packages of the extra `docs`."""

from __future__ import annotations

import importlib.metadata

project = "Headgate"
copyright = "the authors of Headgate"  # noqa: A001 - Sphinx reads this name
try:
    release = importlib.metadata.version("headgate")
except importlib.metadata.PackageNotFoundError:  # a clone without an installed wheel
    release = "unreleased"

extensions = ["myst_parser"]
myst_heading_anchors = 3
# Links to files of the repository stay as they are in the sources.
suppress_warnings = ["myst.xref_missing"]
html_theme = "pydata_sphinx_theme"
html_theme_options = {"show_prev_next": False}
