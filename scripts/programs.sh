#!/usr/bin/env bash
# programs.sh ARGUMENTS OF PYTEST: run tests of whole programs, some of which need packages that no other test needs.
source "$(dirname "$0")/env.sh"

scripts/venv.sh test programs
scripts/develop.sh
exec "$VENV_PYTHON" -m pytest -q "$@"
