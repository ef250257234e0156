#!/usr/bin/env bash
# Build the native module and install it into .venv, editable, if any of its sources changed.
source "$(dirname "$0")/env.sh"

scripts/rust.sh
scripts/venv.sh test
now="$(fingerprint Cargo.toml Cargo.lock pyproject.toml rust_core) $("$VENV_PYTHON" --version)"
if ! current native "$now" || ! "$VENV_PYTHON" -c 'import headgate._native' 2>/dev/null; then
    say "building the native module"
    # Drop the line that pip prints for each extra that was not requested.
    VIRTUAL_ENV="$PWD/.venv" .venv/bin/maturin develop --release --locked 2>&1 | sed '/^Ignoring /d' >&2
    stamp native "$now"
fi
