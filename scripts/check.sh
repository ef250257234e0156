#!/usr/bin/env bash
# Formats, lints, types, stubs, floors, options page: everything that checks the code without its tests.
source "$(dirname "$0")/env.sh"

scripts/rust.sh fmt clippy
scripts/venv.sh lint
scripts/develop.sh

run() {
    say "$*"
    "$@"
}

export PYO3_PYTHON="$PWD/$VENV_PYTHON"
run cargo fmt --all --check
run cargo clippy --locked --workspace --all-targets -- -D warnings
run "$VENV_PYTHON" -m ruff check
run "$VENV_PYTHON" -m ruff format --check
run "$VENV_PYTHON" -m mypy
run "$VENV_PYTHON" -m mypy.stubtest headgate._native \
    --mypy-config-file pyproject.toml --allowlist scripts/stubtest-allowlist.txt
run "$VENV_PYTHON" scripts/options_page.py --check
run "$VENV_PYTHON" -m pytest -q tests/test_architecture.py
