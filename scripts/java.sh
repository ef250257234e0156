#!/usr/bin/env bash
# Check for Java 17 or newer, which Spark 4 needs; install it where that is possible.
source "$(dirname "$0")/env.sh"

java_version() {
    local java=java
    [[ -n "${JAVA_HOME:-}" ]] && java="$JAVA_HOME/bin/java"
    "$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1
}

enough() {
    local found
    found="$(java_version || true)"
    [[ -n "$found" && "$found" -ge 17 ]]
}

enough && exit 0
if [[ -z "${JAVA_HOME:-}" ]] && on_debian_as_root; then
    # Newer releases of Debian offer only a newer Java.
    apt_install openjdk-17-jre-headless || apt_install openjdk-21-jre-headless || true
    enough && exit 0
fi
die "Java 17 or newer not found (JAVA_HOME='${JAVA_HOME:-}'); Spark needs it" \
    "apt-get install openjdk-17-jre-headless      (Debian, Ubuntu)" \
    "dnf install java-17-openjdk-headless         (Fedora, RHEL, Amazon Linux)" \
    "set JAVA_HOME to the folder that holds bin/java"
