#!/usr/bin/env bash
# wheel.sh [--check | --twice] [TARGET]: build dist/*.whl for a target of build_wheel.sh, by default for this machine; with --check,
# check it in a clean environment; with --twice, also build it in another folder and compare the bytes.
# Decision: ADR 0006, in docs/adr.
source "$(dirname "$0")/env.sh"

mode=
[[ "${1:-}" != --* ]] || { mode="$1" && shift; }
target="${1:-$(uname -m)-unknown-linux-gnu}"
scripts/build_wheel.sh "$target"
wheel="$(scripts/build_wheel.sh --name "$target")"
[[ "$mode" ]] || exit 0

scripts/java.sh
"$VENV_PYTHON" scripts/check_wheel.py "$wheel"
[[ "$mode" == --twice ]] || exit 0

other="$(mktemp -d)"
trap 'rm -rf "$other"' EXIT
git ls-files -z | xargs -0 cp --parents --no-dereference --target-directory "$other"
say "building the wheel again, in $other"
SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)" CARGO_TARGET_DIR="$other/build" VENV="$(cd "$VENV" && pwd)" \
    "$other/scripts/build_wheel.sh" "$target"
cmp "$wheel" "$other/$wheel" ||
    die "two builds of the wheel differ" "compare the members of both, then the native modules by diffoscope"
say "both builds of the wheel have the same bytes"
