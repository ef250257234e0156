#!/usr/bin/env bash
# test.sh [PYTEST ARGUMENTS]: all tests, Rust's first; with arguments, pytest's in one process.
source "$(dirname "$0")/env.sh"

scripts/rust.sh
scripts/develop.sh
scripts/class_archive.sh
say "cargo test"
# The bindings are linked by Python; tests/ tests them.
cargo test --locked --workspace --exclude headgate-bindings
say "cargo test: the corpora of the fuzz targets"
cargo test --locked --manifest-path rust_core/fuzz/Cargo.toml
say "cargo test: errors, delays, panics and kills at every failpoint"
cargo test --locked --package headgate-exchange --features failpoints --test failpoints
say "cargo test: what two threads share, in all orders"
RUSTFLAGS="--cfg loom" cargo test --locked --target-dir "$CARGO_TARGET_DIR/loom" \
    --package headgate-memory --package headgate-exchange --lib model::
say "instructions, against those recorded"
scripts/valgrind.sh
"$VENV_PYTHON" -m benches instructions --check
if (($#)); then
    say "pytest"
    exec "$VENV_PYTHON" -m pytest "$@"
fi
# Both wait more than they compute, so they run side by side; the output of one follows that of the other.
on_spark=tests/spark
beside="$(mktemp)"
trap 'kill "$beside_pid" 2>/dev/null || true; rm -f "$beside"' EXIT
say "pytest: all but $on_spark, which run beside it"
"$VENV_PYTHON" -m pytest "$on_spark" >"$beside" 2>&1 &
beside_pid=$!
failed=0
"$VENV_PYTHON" -m pytest --ignore="$on_spark" || failed=$?
say "pytest: $on_spark"
tail -n +1 --follow --pid="$beside_pid" "$beside"
wait "$beside_pid" || failed=$?
exit "$failed"
