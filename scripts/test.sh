#!/usr/bin/env bash
# test.sh [PYTEST ARGUMENTS]: Rust's tests, then Python's in processes side by side but those with the mark "soak"; with
# arguments pytest's alone, in one process, with any mark.
source "$(dirname "$0")/env.sh"

scripts/develop.sh
scripts/class_archive.sh
if (($#)); then
    exec "$VENV_PYTHON" -m pytest "$@"
fi
say "cargo test"
# The bindings link against Python at run time, so only pytest can test them.
cargo test --locked --workspace --exclude headgate-bindings --features headgate-exchange/failpoints
# All tests of a file run in the same process, in the order of the files: the long ones come first. Those on Spark
# come last, as their processes keep a session's threads. Tests wait for nearly half of their time, so
# there are more processes than cores.
pytest=("$VENV_PYTHON" -m pytest -m "not soak" --dist loadfile --no-loadscope-reorder --durations 15)
failed=0
say "pytest: all but tests/spark"
"${pytest[@]}" --numprocesses 4 tests/test_*.py tests/data_plane tests/driver tests/faults tests/functions tests/observe tests/sink tests/source tests/stream || failed=1
say "pytest: tests/spark"
"${pytest[@]}" --numprocesses 3 tests/spark || failed=1
exit "$failed"
