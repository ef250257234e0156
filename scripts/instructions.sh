#!/usr/bin/env bash
# Count the instructions of the hot paths under valgrind; fail if one takes more than recorded.
source "$(dirname "$0")/env.sh"

scripts/develop.sh
scripts/valgrind.sh
"$VENV_PYTHON" -m benches instructions --check
