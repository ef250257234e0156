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
cached "$1-$hadoop-$(fingerprint "$pom" | cut -c1-16)" mvn maven "the client of $1 for Hadoop $hadoop" \
    mvn --quiet --batch-mode -f "$pom" "-Dhadoop.version=$hadoop" dependency:copy-dependencies \
    -DexcludeArtifactIds=slf4j-api "-DoutputDirectory={}"
