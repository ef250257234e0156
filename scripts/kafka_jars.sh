#!/usr/bin/env bash
# kafka_jars.sh: print the folder with the jars of a broker of Kafka. Maven downloads them once, into the user's cache.
source "$(dirname "$0")/env.sh"

pom=tests/soak/kafka/pom.xml
cached "kafka-$(fingerprint "$pom" | cut -c1-16)" mvn maven Kafka \
    mvn --quiet --batch-mode -f "$pom" dependency:copy-dependencies "-DoutputDirectory={}"
