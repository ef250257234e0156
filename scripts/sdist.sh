#!/usr/bin/env bash
# sdist.sh [--check]: build dist/*.tar.gz, all files of the repository; with --check, build a wheel from it as pip does, without
# git, and check that in a clean environment.
# Decision: ADR 0006, in docs/adr.
source "$(dirname "$0")/env.sh"

scripts/rust.sh
scripts/venv.sh wheel
rm -f dist/*.tar.gz
"$VENV/bin/maturin" sdist --out dist
[[ "${1:-}" == --check ]] || exit 0

scripts/java.sh
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/bin"
printf '#!/bin/sh\necho "the build of an sdist asked for git $*" >&2\nexit 1\n' >"$folder/bin/git"
chmod +x "$folder/bin/git"
say "building a wheel from the sdist"
PATH="$folder/bin:$PATH" CARGO_TARGET_DIR="$CARGO_TARGET_DIR/sdist" \
    "$VENV_PYTHON" -m pip wheel -q --no-deps --wheel-dir "$folder" dist/*.tar.gz
"$VENV_PYTHON" scripts/check_wheel.py --local "$folder"/*.whl
