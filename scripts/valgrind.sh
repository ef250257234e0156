#!/usr/bin/env bash
# Make sure of valgrind, which counts instructions, where that can be done; the bench says where it cannot.
source "$(dirname "$0")/env.sh"

command -v valgrind >/dev/null || { on_debian_as_root && apt_install valgrind; } ||
    say "no valgrind found; apt-get install valgrind"
