#!/usr/bin/env bash
# schedules.sh [--count N] [--seed N] [--processes N]: random schedules of fetchers and readers.
source "$(dirname "$0")/env.sh"

scripts/develop.sh
exec nice "$VENV_PYTHON" -m tests.source.run_schedules "$@"
