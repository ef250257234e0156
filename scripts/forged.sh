#!/usr/bin/env bash
# forged.sh: a million forged handshakes in memory, and five thousand each over TCP and TLS.
source "$(dirname "$0")/env.sh"

scripts/develop.sh
say "forged handshakes in memory"
HEADGATE_FORGED=1000000 cargo test --locked --release --package headgate-protocol --test forged -- --nocapture
say "forged handshakes over TCP and TLS"
HEADGATE_TEST_FORGED=4900 exec "$VENV_PYTHON" -m pytest -q -s tests/data_plane/test_forged.py
