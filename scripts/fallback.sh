#!/usr/bin/env bash
# fallback.sh [--check]: make dist/headgate-*-py3-none-any.whl of this version's wheel in dist, which is built first if there is
# none; with --check, check it in a clean environment.
# Decision: ADR 0063, in docs/adr.
source "$(dirname "$0")/env.sh"

wheel="$(scripts/build_wheel.sh --name "$(uname -m)-unknown-linux-gnu")"
[[ -f "$wheel" ]] || scripts/wheel.sh
scripts/venv.sh wheel
rm -f dist/headgate-*-py3-none-any.whl
say "leaving the native module out of $wheel"
SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}" \
    "$VENV_PYTHON" scripts/fallback_wheel.py "$wheel"
[[ "${1:-}" == --check ]] || exit 0

scripts/java.sh
"$VENV_PYTHON" scripts/check_wheel.py dist/headgate-*-py3-none-any.whl
