#!/usr/bin/env bash
# wheel.sh [--twice]: build dist/*.whl and check it in a clean environment; with --twice, build it in another folder too
# and compare the bytes.
# Decision: ADR 0006, in docs/adr.
source "$(dirname "$0")/env.sh"

scripts/java.sh
scripts/build_wheel.sh
"$VENV_PYTHON" scripts/check_wheel.py dist/*.whl
[[ "${1:-}" == --twice ]] || exit 0

other="$(mktemp -d)"
trap 'rm -rf "$other"' EXIT
git ls-files -z | xargs -0 cp --parents --no-dereference --target-directory "$other"
say "building the wheel again, in $other"
SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)" CARGO_TARGET_DIR="$other/build" VENV="$(cd "$VENV" && pwd)" \
    "$other/scripts/build_wheel.sh"
cmp dist/*.whl "$other"/dist/*.whl ||
    die "two builds of the wheel differ" "compare the members of both, then the native modules by diffoscope"
say "both builds of the wheel have the same bytes"
