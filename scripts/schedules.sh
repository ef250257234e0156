#!/usr/bin/env bash
# schedules.sh: all orders of small connections, a million random schedules of whole processes, of jobs with checkpoints
# and of readers, ten thousand faults of the data plane, and thirty thousand peers that lie about shared memory.
# schedules.sh --short: a tenth of those of processes and readers, as in the soak.
# schedules.sh [--count N] [--seed N] [--processes N]: random schedules of fetchers and readers only.
source "$(dirname "$0")/env.sh"

scripts/develop.sh
connections=1000000
case "${1:-}" in
    "") ;;
    --short) connections=100000 && set -- --count 20000 ;;
    *) connections= ;;
esac
if [[ -n "$connections" ]]; then
    say "all orders of two channels with three buffers each"
    nice cargo test --locked --release --package headgate-protocol --test protocol \
        -- --nocapture --ignored every_class_in_every_place_of_both_channels
    say "schedules of processes and connections"
    HEADGATE_SCHEDULES="$connections" nice cargo test --locked --release --package headgate-exchange --lib \
        -- --nocapture schedules
    say "schedules of jobs with checkpoints and losses"
    HEADGATE_CHECKPOINT_SCHEDULES=1000000 nice cargo test --locked --release --package headgate-protocol \
        --test checkpoint -- --nocapture simulator
    say "faults of the data plane, and peers that lie about shared memory"
    HEADGATE_FAULTS=10000 HEADGATE_HOSTILE=30000 nice cargo test --locked --release --package headgate-exchange --lib \
        -- --nocapture simulator::faults simulator::hostile
fi
say "schedules of fetchers and readers"
exec nice "$VENV_PYTHON" -m tests.source.test_schedules "$@"
