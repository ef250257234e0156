#!/usr/bin/env bash
# azurite.sh: print the program of Azurite, a server that speaks Azure's Blob API. npm downloads it once, into the user's
# cache.
source "$(dirname "$0")/env.sh"

version=3.37.0
cache="${XDG_CACHE_HOME:-$HOME/.cache}/headgate"
azurite="$cache/azurite-$version"
if [[ ! -d "$azurite" ]]; then
    if ! command -v npm >/dev/null && on_debian_as_root; then
        apt_install npm || true
    fi
    command -v npm >/dev/null || die "no npm found: it downloads azurite" "apt-get install npm"
    say "downloading azurite $version"
    mkdir -p "$cache"
    partial="$(mktemp -d "$cache/azurite-XXXXXX.partial")"
    trap 'rm -rf "$partial"' EXIT
    npm install --silent --no-audit --no-fund --prefix "$partial" "azurite@$version" >&2
    mv "$partial" "$azurite"
fi
echo "$azurite/node_modules/.bin/azurite-blob"
