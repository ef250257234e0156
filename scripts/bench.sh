#!/usr/bin/env bash
# bench.sh [NAME] [ARGUMENTS]: all benches, or one.
source "$(dirname "$0")/env.sh"

scripts/venv.sh bench
scripts/develop.sh
# Flink's sides of the benches "keyed" and "nexmark" are small Java programs.
case "${1:-}" in
    "" | -* | keyed | nexmark)
        command -v javac >/dev/null || { on_debian_as_root && apt_install openjdk-17-jdk-headless; } ||
            die "no javac found; the bench needs it" "apt-get install openjdk-17-jdk-headless"
        ;;
esac
case "${1:-}" in
    "" | -* | instructions) scripts/valgrind.sh ;;
esac
exec "$VENV_PYTHON" -m benches "$@"
