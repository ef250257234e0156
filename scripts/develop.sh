#!/usr/bin/env bash
# Build the native module and install it into .venv, editable, if any of its sources changed.
source "$(dirname "$0")/env.sh"

scripts/rust.sh
scripts/venv.sh test
now="$(fingerprint Cargo.toml Cargo.lock pyproject.toml rust_core) $("$VENV_PYTHON" --version)"
if ! current native "$now" || ! "$VENV_PYTHON" -c 'import headgate._native' 2>/dev/null; then
    say "building the native module"
    # One clone at a time: maturin moves the module within the folder of builds. The filter drops the line that pip prints for
    # each extra that was not requested.
    (
        flock 9
        own_builds
        VIRTUAL_ENV="$PWD/.venv" .venv/bin/maturin develop --release --locked 9>&- 2>&1 | sed '/^Ignoring /d' >&2
    ) 9<"$CARGO_TARGET_DIR"
    stamp native "$now"
fi
