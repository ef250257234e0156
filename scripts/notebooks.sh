#!/usr/bin/env bash
# notebooks.sh [--check] [NAME...]: execute the notebooks of docs/notebooks, and store what they print, or compare it.
# Decision: ADR 0042, in docs/adr.
source "$(dirname "$0")/env.sh"

scripts/java.sh
scripts/venv.sh docs test
scripts/develop.sh
exec "$VENV_PYTHON" scripts/notebooks.py "$@"
