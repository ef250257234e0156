#!/usr/bin/env bash
# Check that Rust is at least the version that Cargo.toml declares.
source "$(dirname "$0")/env.sh"

how=(
    "curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y"
    "rustup update stable                         (where rustup is installed)"
)
wanted="$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)"
command -v cargo >/dev/null || die "Rust not found; Headgate needs Rust $wanted or newer to build" "${how[@]}"
found="$(cargo --version | cut -d' ' -f2)"
[[ "$(printf '%s\n' "$wanted" "$found" | sort -V | head -n 1)" == "$wanted" ]] ||
    die "Rust $found is too old; Headgate needs $wanted or newer to build" "${how[@]}"
for tool in "$@"; do
    cargo "$tool" --version >/dev/null 2>&1 || die "cargo $tool not found" "rustup component add rustfmt clippy"
done
