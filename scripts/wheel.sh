#!/usr/bin/env bash
# Build dist/*.whl for manylinux_2_28 and check it in a clean environment.
# Decision: ADR 0006, in docs/adr.
source "$(dirname "$0")/env.sh"

scripts/rust.sh
scripts/java.sh
scripts/venv.sh wheel
rm -rf dist
# Zig links against an old glibc on any distribution, as the tag manylinux_2_28 promises. Cargo rebuilds everything
# for another linker, so the wheel has a target folder of its own.
export CARGO_TARGET_DIR="$CARGO_TARGET_DIR/wheel"
PATH="$PWD/.venv/bin:$PATH" maturin build --release --locked --zig --compatibility manylinux_2_28 --out dist
"$VENV_PYTHON" scripts/check_wheel.py dist/*.whl
