#!/usr/bin/env bash
# comet.sh ARGUMENTS OF PYTEST: run tests on Spark 4.1 with DataFusion Comet, in an environment of its own.
source "$(dirname "$0")/env.sh"

export VENV=.venv-comet PIP_CONSTRAINT="$PWD/scripts/comet.txt" PYTHONPATH="$PWD/python"
scripts/venv.sh test
HEADGATE_TEST_COMET="$(scripts/comet_jar.sh)"
export HEADGATE_TEST_COMET
exec "$VENV/bin/python" -m pytest -q "$@"
