#!/usr/bin/env bash
# delta_jars.sh: print the folder with the jars of Delta for the environment's PySpark, if there are some. Maven downloads
# them once, into the user's cache.
source "$(dirname "$0")/env.sh"

pom=tests/soak/lakes/pom.xml
spark="$("$VENV_PYTHON" -c 'import pyspark; print(*pyspark.__version__.split(".")[:2], sep=".")')"
[[ "$spark" == 4.0 ]] || die "Delta has no jars for Spark $spark" "the oldest PySpark: scripts/oldest_spark.sh tests/soak/lakes"
cache="${XDG_CACHE_HOME:-$HOME/.cache}/headgate"
jars="$cache/delta-$(fingerprint "$pom" | cut -c1-16)"
if [[ ! -d "$jars" ]]; then
    if ! command -v mvn >/dev/null && on_debian_as_root; then
        apt_install maven || true
    fi
    command -v mvn >/dev/null || die "no mvn found: Maven downloads Delta" "apt-get install maven"
    say "downloading Delta for Spark $spark"
    mkdir -p "$cache"
    partial="$(mktemp -d "$cache/delta-XXXXXX.partial")"
    trap 'rm -rf "$partial"' EXIT
    mvn --quiet --batch-mode -f "$pom" dependency:copy-dependencies -DincludeScope=runtime \
        -DoutputDirectory="$partial" >&2
    mv "$partial" "$jars"
fi
echo "$jars"
