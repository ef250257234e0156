#!/usr/bin/env bash
# test.sh [PYTEST ARGUMENTS]: Rust's tests, then Python's in two processes; with arguments pytest's alone, in one.
source "$(dirname "$0")/env.sh"

scripts/develop.sh
scripts/class_archive.sh
if (($#)); then
    exec "$VENV_PYTHON" -m pytest "$@"
fi
say "cargo test"
# The bindings are linked by Python; tests/ tests them.
cargo test --locked --workspace --exclude headgate-bindings --features headgate-exchange/failpoints
say "pytest"
# A file stays in one process, so that a session of Spark is started at most twice.
exec "$VENV_PYTHON" -m pytest --numprocesses 2 --dist loadfile --durations 15
