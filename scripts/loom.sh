#!/usr/bin/env bash
# What two threads share, in all orders that loom finds.
source "$(dirname "$0")/env.sh"

scripts/rust.sh
RUSTFLAGS="--cfg loom" cargo test --locked --target-dir "$CARGO_TARGET_DIR/loom" \
    --package headgate-memory --package headgate-exchange --lib model::
