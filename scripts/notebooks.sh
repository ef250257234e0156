#!/usr/bin/env bash
# notebooks.sh [NAME...]: execute the notebooks of docs/notebooks, or these, and store what they print.
# notebooks.sh --check [ARGUMENTS OF PYTEST]: execute them, and fail if one prints something else than is stored.
# Decision: ADR 0042, in docs/adr.
source "$(dirname "$0")/env.sh"

scripts/java.sh
scripts/venv.sh docs test
scripts/develop.sh
if [[ "${1:-}" == --check ]]; then
    shift
    exec "$VENV_PYTHON" -m pytest -q "${@:-tests/soak/notebooks}"
fi
exec "$VENV_PYTHON" -m scripts.notebooks "$@"
