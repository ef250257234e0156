#!/usr/bin/env bash
# Install valgrind, which counts instructions, where that is possible; the bench says so where it is not.
source "$(dirname "$0")/env.sh"

command -v valgrind >/dev/null || { on_debian_as_root && apt_install valgrind; } ||
    say "no valgrind found; apt-get install valgrind"
