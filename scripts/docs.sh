#!/usr/bin/env bash
# Build the site of the documentation into dist/docs; a warning or a link that leads nowhere is an error.
# Decision: ADR 0042, in docs/adr.
source "$(dirname "$0")/env.sh"

scripts/venv.sh docs
scripts/develop.sh

say "building dist/docs"
rm -rf dist/docs
# Sphinx repeats no warning about a page that it has kept from an earlier run, so each run begins with nothing.
"$VENV_PYTHON" -m sphinx -q -W --keep-going -b html docs dist/docs
"$VENV_PYTHON" scripts/check_site.py dist/docs
