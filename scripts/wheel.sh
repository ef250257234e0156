#!/usr/bin/env bash
# Build dist/*.whl for manylinux_2_28 and check it in a clean environment.
# Decision: ADR 0006, in docs/adr.
source "$(dirname "$0")/env.sh"

scripts/rust.sh
scripts/java.sh
scripts/venv.sh wheel
rm -rf dist
# Zig links against an old glibc wherever it runs; so the tag is kept on any distribution. Another
# linker is another configuration to cargo: a folder of its own keeps it from rebuilding the rest.
export CARGO_TARGET_DIR="$CARGO_TARGET_DIR/wheel"
PATH="$PWD/.venv/bin:$PATH" maturin build --release --locked --zig --compatibility manylinux_2_28 --out dist
"$VENV_PYTHON" scripts/check_wheel.py dist/*.whl
