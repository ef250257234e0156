#!/usr/bin/env bash
# schedules.sh [--count N] [--seed N] [--processes N]: random schedules of fetchers and readers, and
# without arguments also a million of whole processes and their connections, and all of small connections.
source "$(dirname "$0")/env.sh"

scripts/develop.sh
if (($# == 0)); then
    say "all orders of two channels with three buffers each"
    nice cargo test --locked --release --package headgate-protocol --test protocol \
        -- --nocapture --ignored every_class_in_every_place_of_both_channels
    say "schedules of processes and connections"
    HEADGATE_SCHEDULES=1000000 nice cargo test --locked --release --package headgate-exchange --lib \
        -- --nocapture schedules
fi
say "schedules of fetchers and readers"
exec nice "$VENV_PYTHON" -m tests.source.run_schedules "$@"
