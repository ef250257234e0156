#!/usr/bin/env bash
# Run the loom models: each order in which two threads can touch shared state.
source "$(dirname "$0")/env.sh"

scripts/rust.sh
RUSTFLAGS="--cfg loom" cargo test --locked --target-dir "$CARGO_TARGET_DIR/loom" \
    --package headgate-memory --package headgate-exchange --lib model::
