#!/usr/bin/env bash
# test.sh [PYTEST ARGUMENTS]: Rust's tests, then Python's in two processes; with arguments pytest's alone, in one.
source "$(dirname "$0")/env.sh"

scripts/develop.sh
scripts/class_archive.sh
if (($#)); then
    exec "$VENV_PYTHON" -m pytest "$@"
fi
say "cargo test"
# The bindings link against Python at run time, so only pytest can test them.
cargo test --locked --workspace --exclude headgate-bindings --features headgate-exchange/failpoints
# All tests of a file run in the same process. Those on Spark come last: their processes keep a session's threads.
pytest=("$VENV_PYTHON" -m pytest --numprocesses 2 --dist loadfile --durations 15)
failed=0
say "pytest: all but tests/spark"
"${pytest[@]}" tests/test_*.py tests/data_plane tests/driver tests/faults tests/sink tests/source || failed=1
say "pytest: tests/spark"
"${pytest[@]}" tests/spark || failed=1
exit "$failed"
