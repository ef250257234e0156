#!/usr/bin/env bash
# kafka.sh ARGUMENTS OF PYTEST: run tests with a real broker of Kafka. Maven downloads its jars once, into the user's cache.
source "$(dirname "$0")/env.sh"

scripts/java.sh
scripts/venv.sh test
pom=tests/soak/kafka/pom.xml
jars="$(cached "kafka-$(fingerprint "$pom" | cut -c1-16)" mvn maven Kafka \
    mvn --quiet --batch-mode -f "$pom" dependency:copy-dependencies "-DoutputDirectory={}")"
HEADGATE_TEST_KAFKA="$jars" exec "$VENV_PYTHON" -m pytest -q "$@"
