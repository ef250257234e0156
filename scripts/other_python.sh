#!/usr/bin/env bash
# other_python.sh VERSION [PYTEST ARGUMENTS]: run tests with another Python, such as 3.13, and this version's wheel of dist, which
# is built first if there is none; without arguments some tests of each layer.
source "$(dirname "$0")/env.sh"

version="${1:-}"
[[ "$version" =~ ^3\.(1[1-9]|[2-9][0-9])$ ]] ||
    die "a version of Python from 3.11 on is needed, not '$version'" "scripts/other_python.sh 3.13"
shift

is_it() { [[ "$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" == "$version" ]]; }
PYTHON=
for python in "python$version" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python; do
    ! is_it "$python" || { PYTHON="$python" && break; }
done
[[ "$PYTHON" ]] || die "no Python $version found" "apt-get install python$version-venv" "pyenv install $version"
export PYTHON

scripts/java.sh
wheel="$(scripts/build_wheel.sh --name "$(uname -m)-unknown-linux-gnu")"
[[ -f "$wheel" ]] || scripts/wheel.sh
export VENV=".venv-$version"
VENV_PYTHON="$VENV/bin/python"
scripts/venv.sh test
"$VENV_PYTHON" -m pip install -q --no-deps --force-reinstall "$wheel"
scripts/class_archive.sh

say "$("$VENV_PYTHON" --version), $(basename "$wheel")"
pytest=("$VENV_PYTHON" -m pytest -q -m "not soak" --dist loadfile --numprocesses 2)
if (($#)); then
    exec "${pytest[@]}" "$@"
fi
failed=0
# Those on Spark by themselves, as their processes keep a session's threads.
"${pytest[@]}" tests/test_errors.py tests/test_wheel_habits.py tests/data_plane tests/functions tests/sink tests/source \
    tests/stream/test_*.py tests/stream/jobs/test_{jobs,recovery,task,workers}.py || failed=1
"${pytest[@]}" tests/spark/test_{data_source,frozen_modules,kept,spark_internals,streams,tracebacks,write}.py || failed=1
exit "$failed"
