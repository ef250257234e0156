#!/usr/bin/env bash
# flink_jars.sh: print the folder with the jars by which Flink SQL reads Parquet and Kafka. Maven downloads them once, into the user's cache.
source "$(dirname "$0")/env.sh"

pom=benches/flink/pom.xml
cached "flink-$(fingerprint "$pom" | cut -c1-16)" mvn maven "connectors of Flink" \
    mvn --quiet --batch-mode -f "$pom" dependency:copy-dependencies -DexcludeTransitive=true "-DoutputDirectory={}"
