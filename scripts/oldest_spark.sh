#!/usr/bin/env bash
# oldest_spark.sh: the tests on Spark with the oldest PySpark that the package allows, in an environment of its own.
source "$(dirname "$0")/env.sh"

export VENV=.venv-oldest PIP_CONSTRAINT="$PWD/scripts/oldest_spark.txt" PYTHONPATH="$PWD/python"
scripts/venv.sh test
scripts/class_archive.sh
exec "$VENV/bin/python" -m pytest -q --numprocesses 2 --dist loadfile tests/spark tests/soak/ends
