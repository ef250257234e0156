#!/usr/bin/env bash
# build_wheel.sh [--name] TARGET: build dist/*.whl: the same bytes in any folder, without the name of a folder of this machine.
# With --name, print the file and build nothing. TARGET is one of Rust's, such as aarch64-unknown-linux-musl.
# Decisions: ADR 0006 and ADR 0063, in docs/adr.
source "$(dirname "$0")/env.sh"

name=
[[ "${1:-}" != --name ]] || { name=1 && shift; }
target="$1"
case "$target" in
    *-linux-gnu) policy=manylinux_2_28 ;;
    *-linux-musl) policy=musllinux_1_2 ;;
    *) die "there is no wheel for the target $target" "a target that ends with -linux-gnu or -linux-musl" ;;
esac
version="$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)"
wheel="dist/headgate-$version-cp311-abi3-${policy}_${target%%-*}.whl"
if [[ "$name" ]]; then
    echo "$wheel"
    exit
fi

scripts/rust.sh
[[ -d "$(rustc --print target-libdir --target "$target")" ]] ||
    die "Rust has no standard library for $target" "rustup target add $target"
scripts/venv.sh wheel
VENV="$(cd "$VENV" && pwd)"
# Commands of the pages name a wheel by a pattern, so there is one of each platform.
rm -f dist/headgate-*-"${policy}_${target%%-*}.whl"
# Zig links against an old glibc, or musl, on any distribution, as the tag promises. Cargo rebuilds everything
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

PATH="$VENV/bin:$PATH" maturin build --release --locked --zig --target "$target" --compatibility "$policy" --out dist
"$VENV/bin/python" scripts/clean_wheel.py "$wheel"
