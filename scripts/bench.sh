#!/usr/bin/env bash
# bench.sh [NAME] [ARGUMENTS]: all benches, or one.
source "$(dirname "$0")/env.sh"

scripts/venv.sh bench
scripts/develop.sh
exec "$VENV_PYTHON" -m benches "$@"
