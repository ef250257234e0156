#!/usr/bin/env bash
# chaos.sh [--count N] [--seed N] [--processes N] [--limit S] [--busy] [--json FILE]: jobs with one fault each.
source "$(dirname "$0")/env.sh"

scripts/develop.sh
scripts/class_archive.sh
exec "$VENV_PYTHON" -m tests.soak.chaos.run_chaos "$@"
