#!/usr/bin/env bash
# venv.sh NAME...: create the environment VENV (.venv) with the build tools and the packages of these extras and groups
# of pyproject.toml.
source "$(dirname "$0")/env.sh"

usable() { command -v "$1" >/dev/null && "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

if ! usable "$VENV_PYTHON"; then
    for python in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
        usable "$python" && break
    done
    usable "$python" || die "no Python 3.11 or newer found" \
        "install one" "make ... PYTHON=/path/to/python3.11"
    if ! "$python" -c 'import ensurepip' 2>/dev/null && on_debian_as_root; then
        apt_install python3-venv || true
    fi
    say "making $VENV with $("$python" --version)"
    "$python" -m venv --clear "$VENV" || die "$python cannot make a virtual environment" \
        "apt-get install python3-venv" "make ... PYTHON=/path/to/another/python"
fi

wanted="$("$VENV_PYTHON" - "$@" <<'PY'
import sys
import tomllib

with open("pyproject.toml", "rb") as file:
    tables = tomllib.load(file)
project = tables["project"]
named = project["optional-dependencies"] | tables["dependency-groups"]
asked = (line for name in sys.argv[1:] for line in named[name])
needed = {*tables["build-system"]["requires"], *project["dependencies"], *asked}
print("\n".join(sorted(needed)))
PY
)"
name="packages-$(IFS=-; echo "$*")"
if ! current "$name" "$wanted"; then
    say "installing the packages of: $*"
    mapfile -t packages <<<"$wanted"
    "$VENV_PYTHON" -m pip install -q "${packages[@]}"
    stamp "$name" "$wanted"
fi
