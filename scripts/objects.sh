#!/usr/bin/env bash
# objects.sh ARGUMENTS OF PYTEST: run tests with an object store that speaks S3, a process of Python's moto.
source "$(dirname "$0")/env.sh"

scripts/venv.sh test objects
scripts/develop.sh
exec "$VENV_PYTHON" -m pytest -q "$@"
