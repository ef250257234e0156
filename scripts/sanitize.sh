#!/usr/bin/env bash
# sanitize.sh: run the tests of the crate that has `unsafe`, and of its users, under AddressSanitizer.
source "$(dirname "$0")/env.sh"

scripts/rust.sh
host="$(rustc -vV | sed -n 's/^host: //p')"
# -Z flags are closed on stable. `--cfg asan` lets the crate memory mark its idle segments.
export RUSTC_BOOTSTRAP=1
export RUSTFLAGS="-Zsanitizer=address --cfg asan"
for package in headgate-memory headgate-record headgate-net headgate-exchange; do
    say "cargo test under AddressSanitizer: $package"
    cargo test --locked --target "$host" --target-dir "$CARGO_TARGET_DIR/asan" --package "$package" --lib --tests
done
