#!/usr/bin/env bash
# kafka.sh ARGUMENTS OF PYTEST: run tests with a real broker of Kafka. Maven downloads its jars once, into the user's cache.
source "$(dirname "$0")/env.sh"

scripts/java.sh
scripts/venv.sh test
pom=tests/soak/kafka/pom.xml
cache="${XDG_CACHE_HOME:-$HOME/.cache}/headgate"
jars="$cache/kafka-$(fingerprint "$pom" | cut -c1-16)"
if [[ ! -d "$jars" ]]; then
    if ! command -v mvn >/dev/null && on_debian_as_root; then
        apt_install maven || true
    fi
    command -v mvn >/dev/null || die "no mvn found: Maven downloads Kafka" "apt-get install maven"
    say "downloading Kafka"
    mkdir -p "$cache"
    partial="$(mktemp -d "$cache/kafka-XXXXXX.partial")"
    trap 'rm -rf "$partial"' EXIT
    mvn --quiet --batch-mode -f "$pom" dependency:copy-dependencies -DoutputDirectory="$partial" >&2
    mv "$partial" "$jars"
fi
HEADGATE_TEST_KAFKA="$jars" exec "$VENV_PYTHON" -m pytest -q "$@"
