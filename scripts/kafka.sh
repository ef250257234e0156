#!/usr/bin/env bash
# kafka.sh ARGUMENTS OF PYTEST: run tests with a real broker of Kafka.
source "$(dirname "$0")/env.sh"

scripts/java.sh
scripts/venv.sh test
jars="$(scripts/kafka_jars.sh)"
HEADGATE_TEST_KAFKA="$jars" exec "$VENV_PYTHON" -m pytest -q "$@"
