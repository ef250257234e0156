#!/usr/bin/env bash
# Archive the classes that Spark's JVMs load in tests, if Spark or Java changed: a JVM then starts in half the time.
source "$(dirname "$0")/env.sh"

now="$("$VENV_PYTHON" -c 'import pyspark; print(pyspark.__version__)') $("${JAVA_HOME:+$JAVA_HOME/bin/}java" -version 2>&1)"
if ! current classes "$now" || [[ ! -f "$VENV/spark-classes.jsa" ]]; then
    say "archiving the classes of Spark"
    rm -f "$VENV/spark-classes.jsa"
    "$VENV_PYTHON" -m scripts.class_archive
    stamp classes "$now"
fi
