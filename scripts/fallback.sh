#!/usr/bin/env bash
# fallback.sh [--check]: make dist/headgate-*-py3-none-any.whl of the wheel in dist, which is built first if there is none; with
# --check, check it in a clean environment.
# Decision: ADR 0063, in docs/adr.
source "$(dirname "$0")/env.sh"

built() { compgen -G "dist/headgate-*manylinux*_x86_64.whl" >/dev/null; }
built || scripts/wheel.sh
scripts/venv.sh wheel
rm -f dist/headgate-*-py3-none-any.whl
SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}" \
    "$VENV_PYTHON" scripts/fallback_wheel.py dist/headgate-*manylinux*_x86_64.whl
[[ "${1:-}" == --check ]] || exit 0

scripts/java.sh
"$VENV_PYTHON" scripts/check_wheel.py dist/headgate-*-py3-none-any.whl
