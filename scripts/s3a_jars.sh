#!/usr/bin/env bash
# s3a_jars.sh: print the folder with the jars of hadoop-aws, Hadoop's client of S3, for the Hadoop of the environment's
# PySpark. Maven downloads them once, into the user's cache.
source "$(dirname "$0")/env.sh"

pom=tests/soak/storage/pom.xml
hadoop="$("$VENV_PYTHON" - <<'PY'
import re
from pathlib import Path

import pyspark

(jar,) = Path(pyspark.__file__).parent.glob("jars/hadoop-client-api-*.jar")
print(re.fullmatch(r"hadoop-client-api-(.+)\.jar", jar.name)[1])
PY
)"
cache="${XDG_CACHE_HOME:-$HOME/.cache}/headgate"
jars="$cache/hadoop-aws-$hadoop-$(fingerprint "$pom" | cut -c1-16)"
if [[ ! -d "$jars" ]]; then
    if ! command -v mvn >/dev/null && on_debian_as_root; then
        apt_install maven || true
    fi
    command -v mvn >/dev/null || die "no mvn found: Maven downloads hadoop-aws" "apt-get install maven"
    say "downloading hadoop-aws $hadoop"
    mkdir -p "$cache"
    partial="$(mktemp -d "$cache/hadoop-aws-XXXXXX.partial")"
    trap 'rm -rf "$partial"' EXIT
    mvn --quiet --batch-mode -f "$pom" -Dhadoop.version="$hadoop" dependency:copy-dependencies \
        -DexcludeArtifactIds=slf4j-api -DoutputDirectory="$partial" >&2
    mv "$partial" "$jars"
fi
echo "$jars"
