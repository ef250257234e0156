# Sourced by the other scripts: paths, messages, stamps.
# shellcheck shell=bash

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

VENV="${VENV:-.venv}"
# shellcheck disable=SC2034 # other scripts use it
VENV_PYTHON="$VENV/bin/python"
STAMPS="$VENV/.stamps"
export PATH="$HOME/.cargo/bin:$PATH"
export PIP_DISABLE_PIP_VERSION_CHECK=1

# Outside the clone, so that a fresh clone reuses crates that an earlier clone compiled.
if [[ -z "${CARGO_TARGET_DIR:-}" ]]; then
    CARGO_TARGET_DIR="${XDG_CACHE_HOME:-$HOME/.cache}/headgate/target"
    mkdir -p "$CARGO_TARGET_DIR" 2>/dev/null || CARGO_TARGET_DIR="$PWD/target"
fi
export CARGO_TARGET_DIR

# Cargo names our crates alike in every clone and compares times: it would take another clone's build for this one's.
own_builds() {
    if [[ "$(cat "$CARGO_TARGET_DIR/.clone" 2>/dev/null)" != "$PWD" ]]; then
        find rust_core -name '*.rs' -exec touch {} +
        mkdir -p "$CARGO_TARGET_DIR" && printf '%s' "$PWD" >"$CARGO_TARGET_DIR/.clone"
    fi
}
own_builds

say() { printf '\033[1m%s\033[0m\n' "$*" >&2; }

# die PROBLEM REMEDY...: print the problem, then one line per remedy, and exit.
die() {
    printf 'error: %s\n' "$1" >&2
    shift
    printf '  do one  %s\n' "$@" >&2
    exit 1
}

on_debian_as_root() { [[ "$(id -u)" == 0 && -f /etc/debian_version ]] && command -v apt-get >/dev/null; }

apt_install() {
    say "installing $*"
    apt-get update -q >&2 && DEBIAN_FRONTEND=noninteractive apt-get install -yq --no-install-recommends "$@" >&2
}

# fingerprint PATH...: print one hash over names and contents.
fingerprint() { find "$@" -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -d' ' -f1; }

# cached NAME PROGRAM PACKAGE WHAT COMMAND...: print the folder NAME of the user's cache. If it is missing, COMMAND fills it
# first; {} in COMMAND is the folder. It runs PROGRAM, which the Debian package PACKAGE has.
cached() {
    local cache="${XDG_CACHE_HOME:-$HOME/.cache}/headgate" name="$1" program="$2" package="$3" what="$4" partial
    shift 4
    if [[ ! -d "$cache/$name" ]]; then
        if ! command -v "$program" >/dev/null && on_debian_as_root; then
            apt_install "$package" || true
        fi
        command -v "$program" >/dev/null || die "no $program found: it downloads $what" "apt-get install $package"
        say "downloading $what"
        mkdir -p "$cache"
        partial="$(mktemp -d "$cache/$name-XXXXXX.partial")"
        # shellcheck disable=SC2064 # the folder is known now, and not when the script ends
        trap "rm -rf $(printf %q "$partial")" EXIT
        "${@//\{\}/$partial}" >&2 || die "$what could not be downloaded" "see above"
        mv "$partial" "$cache/$name"
    fi
    echo "$cache/$name"
}

# current STAMP VALUE: succeed if the stamp holds the value.
current() { [[ -f "$STAMPS/$1" && "$(<"$STAMPS/$1")" == "$2" ]]; }

stamp() {
    mkdir -p "$STAMPS"
    printf '%s' "$2" >"$STAMPS/$1"
}
