#!/usr/bin/env bash
# store_jars.sh STORE: print the folder with the jars of Hadoop's client of a store, s3a, gs or abfs, for the Hadoop of the
# environment's PySpark. Maven downloads them once, into the user's cache.
source "$(dirname "$0")/env.sh"

pom="tests/soak/storage/$1.pom.xml"
hadoop="$("$VENV_PYTHON" - <<'PY'
import re
from pathlib import Path

import pyspark

(jar,) = Path(pyspark.__file__).parent.glob("jars/hadoop-client-api-*.jar")
print(re.fullmatch(r"hadoop-client-api-(.+)\.jar", jar.name)[1])
PY
)"
cache="${XDG_CACHE_HOME:-$HOME/.cache}/headgate"
jars="$cache/$1-$hadoop-$(fingerprint "$pom" | cut -c1-16)"
if [[ ! -d "$jars" ]]; then
    if ! command -v mvn >/dev/null && on_debian_as_root; then
        apt_install maven || true
    fi
    command -v mvn >/dev/null || die "no mvn found: Maven downloads the client of $1" "apt-get install maven"
    say "downloading the client of $1 for Hadoop $hadoop"
    mkdir -p "$cache"
    partial="$(mktemp -d "$cache/$1-XXXXXX.partial")"
    trap 'rm -rf "$partial"' EXIT
    mvn --quiet --batch-mode -f "$pom" -Dhadoop.version="$hadoop" dependency:copy-dependencies \
        -DexcludeArtifactIds=slf4j-api -DoutputDirectory="$partial" >&2
    mv "$partial" "$jars"
fi
echo "$jars"
