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
cargo_test=(cargo test --locked --workspace --exclude headgate-bindings --features headgate-exchange/failpoints)
"${cargo_test[@]}" --no-run
# Tests wait for much of their time, so Rust's run beside Python's first ones; their output comes at the end.
rust_output="$(mktemp)"
# In a group of processes of its own, so that the tests that cargo has started end with it. Ctrl-C does not reach that group.
set -m
"${cargo_test[@]}" >"$rust_output" 2>&1 </dev/null &
rust=$!
set +m
trap 'kill -- "-$rust" 2>/dev/null || true; rm -f "$rust_output"' EXIT
# pytest handles Ctrl-C itself and ends with a status, after which the shell would go on.
trap 'exit 130' INT
trap 'exit 143' TERM
# All tests of a file run in the same process, in the order of the files: the long ones come first. Those on Spark
# come last, as their processes keep a session's threads. Two of them fill two cores; the others wait for much.
pytest=("$VENV_PYTHON" -m pytest -m "not soak" --dist loadfile --no-loadscope-reorder --durations 15)
failed=0
say "pytest: all but tests/spark"
"${pytest[@]}" --numprocesses 3 tests/test_*.py tests/data_plane tests/driver tests/faults tests/functions tests/observe tests/sink tests/source tests/stream || failed=1
say "pytest: tests/spark"
"${pytest[@]}" --numprocesses 2 tests/spark || failed=1
say "cargo test: its output"
wait "$rust" || failed=1
cat "$rust_output"
exit "$failed"
