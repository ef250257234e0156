#!/usr/bin/env bash
# Build dist/*.whl for manylinux_2_28: the same bytes in any folder, without the name of a folder of this machine.
# Decision: ADR 0006, in docs/adr.
source "$(dirname "$0")/env.sh"

scripts/rust.sh
scripts/venv.sh wheel
VENV="$(cd "$VENV" && pwd)"
rm -rf dist
# Zig links against an old glibc on any distribution, as the tag manylinux_2_28 promises. Cargo rebuilds everything
# for another linker, so the wheel has a target folder of its own.
export CARGO_TARGET_DIR="$CARGO_TARGET_DIR/wheel"
SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}"
export SOURCE_DATE_EPOCH

# Panics and assertions name their source files: what the compilers see of this machine's folders is cut off.
cargo fetch -q --locked
remaps=("$PWD=headgate" "$CARGO_TARGET_DIR=target" "$(rustc --print sysroot)/lib/rustlib/src/rust=rustc")
for folder in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*; do
    remaps+=("$folder=crates")
done
encoded="$(printf -- '--remap-path-prefix=%s\x1f' "${remaps[@]}")"
export CARGO_ENCODED_RUSTFLAGS="${encoded%$'\x1f'}"
CFLAGS="$(printf -- '-ffile-prefix-map=%s ' "${remaps[@]}")"
export CFLAGS

PATH="$VENV/bin:$PATH" maturin build --release --locked --zig --compatibility manylinux_2_28 --out dist
"$VENV/bin/python" scripts/clean_wheel.py dist/*.whl
