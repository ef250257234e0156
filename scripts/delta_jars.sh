#!/usr/bin/env bash
# delta_jars.sh: print the folder with the jars of Delta for the environment's PySpark, if there are some. Maven downloads
# them once, into the user's cache.
source "$(dirname "$0")/env.sh"

pom=tests/soak/lakes/pom.xml
spark="$("$VENV_PYTHON" -c 'import pyspark; print(*pyspark.__version__.split(".")[:2], sep=".")')"
[[ "$spark" == 4.0 ]] || die "Delta has no jars for Spark $spark" "the oldest PySpark: scripts/oldest_spark.sh tests/soak/lakes"
cached "delta-$(fingerprint "$pom" | cut -c1-16)" mvn maven "Delta for Spark $spark" \
    mvn --quiet --batch-mode -f "$pom" dependency:copy-dependencies -DincludeScope=runtime "-DoutputDirectory={}"
