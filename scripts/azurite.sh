#!/usr/bin/env bash
# azurite.sh: print the program of Azurite, a server that speaks Azure's Blob API. npm downloads it once, into the user's
# cache.
source "$(dirname "$0")/env.sh"

version=3.37.0
azurite="$(cached "azurite-$version" npm npm "azurite $version" \
    npm install --silent --no-audit --no-fund --prefix "{}" "azurite@$version")"
echo "$azurite/node_modules/.bin/azurite-blob"
