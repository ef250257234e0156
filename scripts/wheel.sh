#!/usr/bin/env bash
# wheel.sh [--check | --twice]: build dist/*.whl; with --check, check it in a clean environment; with --twice, also build it in
# another folder and compare the bytes.
# Decision: ADR 0006, in docs/adr.
source "$(dirname "$0")/env.sh"

scripts/build_wheel.sh
[[ "${1:-}" ]] || exit 0

scripts/java.sh
"$VENV_PYTHON" scripts/check_wheel.py dist/*.whl
[[ "$1" == --twice ]] || exit 0

other="$(mktemp -d)"
trap 'rm -rf "$other"' EXIT
git ls-files -z | xargs -0 cp --parents --no-dereference --target-directory "$other"
say "building the wheel again, in $other"
SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)" CARGO_TARGET_DIR="$other/build" VENV="$(cd "$VENV" && pwd)" \
    "$other/scripts/build_wheel.sh"
cmp dist/*.whl "$other"/dist/*.whl ||
    die "two builds of the wheel differ" "compare the members of both, then the native modules by diffoscope"
say "both builds of the wheel have the same bytes"
