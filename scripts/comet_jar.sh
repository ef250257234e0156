#!/usr/bin/env bash
# comet_jar.sh: print the path of the jar of DataFusion Comet for Spark 4.1. Maven downloads it once, into the user's cache.
source "$(dirname "$0")/env.sh"

artifact=comet-spark-spark4.1_2.13
version=1.2.0
folder="$(cached "comet-$version" mvn maven "Comet $version" \
    mvn --quiet --batch-mode dependency:copy -Dartifact="org.apache.datafusion:$artifact:$version" "-DoutputDirectory={}")"
echo "$folder/$artifact-$version.jar"
