#!/usr/bin/env bash
# comet_jar.sh: print the path of the jar of DataFusion Comet for Spark 4.1. Maven downloads it once, into the user's cache.
source "$(dirname "$0")/env.sh"

artifact=comet-spark-spark4.1_2.13
version=1.2.0
cache="${XDG_CACHE_HOME:-$HOME/.cache}/headgate"
folder="$cache/comet-$version"
if [[ ! -d "$folder" ]]; then
    if ! command -v mvn >/dev/null && on_debian_as_root; then
        apt_install maven || true
    fi
    command -v mvn >/dev/null || die "no mvn found: Maven downloads Comet" "apt-get install maven"
    say "downloading Comet $version"
    mkdir -p "$cache"
    partial="$(mktemp -d "$cache/comet-XXXXXX.partial")"
    trap 'rm -rf "$partial"' EXIT
    mvn --quiet --batch-mode dependency:copy -Dartifact="org.apache.datafusion:$artifact:$version" \
        -DoutputDirectory="$partial" >&2
    mv "$partial" "$folder"
fi
echo "$folder/$artifact-$version.jar"
