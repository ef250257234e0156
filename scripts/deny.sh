#!/usr/bin/env bash
# deny.sh: check licences, duplicates, bans, sources and advisories of all crates in Cargo.lock, by deny.toml.
source "$(dirname "$0")/env.sh"

version=0.20.2
tools="$CARGO_TARGET_DIR/tools"
export PATH="$tools/bin:$PATH"

scripts/rust.sh
if [[ "$(cargo deny --version 2>/dev/null)" != "cargo-deny $version" ]]; then
    say "cargo install cargo-deny $version: two minutes on idle cores, once"
    cargo install --locked cargo-deny --version "$version" --root "$tools" --target-dir "$tools/build"
    rm -rf "$tools/build"
fi

deny=(cargo deny --locked --all-features)
say "cargo deny check licenses bans sources"
# An entry of `skip` that is not needed any more fails too.
"${deny[@]}" check -D unmatched-skip -D unnecessary-skip licenses bans sources

say "cargo deny check advisories"
if timeout 120 "${deny[@]}" fetch db; then
    "${deny[@]}" check --disable-fetch advisories
else
    printf 'advisories NOT CHECKED: the RustSec database cannot be fetched from here\n' >&2
fi
