#!/usr/bin/env bash
# test.sh [PYTEST ARGUMENTS]: all tests, Rust's first.
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
say "pytest"
"$VENV_PYTHON" -m pytest "$@"
