#!/usr/bin/env bash
# preview_spark.sh ARGUMENTS OF PYTEST: run tests with the newest preview of PySpark, or the newest release if there is no
# preview after it, in an environment of its own.
source "$(dirname "$0")/env.sh"

scripts/java.sh
scripts/develop.sh
# The module that .venv has serves every Python from 3.11 on.
export VENV=.venv-preview PYTHONPATH="$PWD/python"
scripts/venv.sh test
"$VENV/bin/python" -m pip install -q --pre --upgrade "pyspark[connect,sql]"
say "PySpark $("$VENV/bin/python" -c 'import pyspark; print(pyspark.__version__)')"
exec "$VENV/bin/python" -m pytest -q -rs "$@"
