#!/usr/bin/env bash
# oldest_spark.sh ARGUMENTS OF PYTEST: run tests with the oldest PySpark that the package allows, in an environment of its
# own, and with the jars of Delta, which there are for it.
source "$(dirname "$0")/env.sh"

scripts/java.sh
scripts/develop.sh
export VENV=.venv-oldest PIP_CONSTRAINT="$PWD/scripts/oldest_spark.txt" PYTHONPATH="$PWD/python"
scripts/venv.sh test
scripts/class_archive.sh
# Without the jars, tests/soak/lakes says that it was skipped.
if jars="$(scripts/delta_jars.sh)"; then export HEADGATE_TEST_DELTA="$jars"; fi
exec "$VENV/bin/python" -m pytest -q -rs --numprocesses 2 --dist loadfile "$@"
