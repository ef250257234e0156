#!/usr/bin/env bash
# lint.sh [ARGUMENTS OF pre-commit run]: the hooks of .pre-commit-config.yaml on all files, each with tools of its own.
source "$(dirname "$0")/env.sh"

scripts/rust.sh fmt
scripts/venv.sh hooks
exec "$VENV/bin/pre-commit" run --all-files --show-diff-on-failure "$@"
