#!/usr/bin/env bash
# chaos.sh [COUNT] [ARGUMENT OF PYTEST...]: COUNT exchanges (500) on local-cluster, each with one random fault.
source "$(dirname "$0")/env.sh"

scripts/develop.sh
scripts/class_archive.sh
count="${1:-500}"
shift || true
HEADGATE_TEST_KEPT_FAULTS="$count" exec "$VENV_PYTHON" -m pytest -q "$@" tests/soak/chaos/test_kept_chaos.py
