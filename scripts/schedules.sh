#!/usr/bin/env bash
# schedules.sh [--count N] [--seed N] [--processes N]: random schedules of fetchers and readers, and
# without arguments also a million of whole processes and their connections.
source "$(dirname "$0")/env.sh"

scripts/develop.sh
if (($# == 0)); then
    say "schedules of processes and connections"
    HEADGATE_SCHEDULES=1000000 nice cargo test --locked --release --package headgate-exchange --lib \
        -- --nocapture schedules
fi
say "schedules of fetchers and readers"
exec nice "$VENV_PYTHON" -m tests.source.run_schedules "$@"
