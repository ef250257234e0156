#!/usr/bin/env bash
# soak.sh [ARGUMENTS OF soak.py]: set up what the parts of the soak need, then run them.
source "$(dirname "$0")/env.sh"

scripts/develop.sh
scripts/class_archive.sh
exec "$VENV_PYTHON" scripts/soak.py "$@"
