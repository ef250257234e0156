#!/usr/bin/env bash
# coverage.sh [PYTEST ARGUMENTS]: how many lines of the product `make test` reaches, and the ten files with most lines that it
# does not; with arguments, of these tests of pytest alone.
source "$(dirname "$0")/env.sh"

scripts/rust.sh
scripts/java.sh
version=0.9.1
tools="$CARGO_TARGET_DIR/tools"
export PATH="$tools/bin:$PATH"
if [[ "$(cargo llvm-cov --version 2>/dev/null)" != "cargo-llvm-cov $version" ]]; then
    say "cargo install cargo-llvm-cov $version, once"
    cargo install --locked cargo-llvm-cov --version "$version" --root "$tools" --target-dir "$tools/build"
    rm -rf "$tools/build"
fi

# The tools that read the counters are of the LLVM that rustc has.
llvm="$(rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')"
if ! compgen -G "$(rustc --print sysroot)/lib/rustlib/*/bin/llvm-cov" >/dev/null; then
    command -v "llvm-cov-$llvm" >/dev/null || { on_debian_as_root && apt_install "llvm-$llvm"; } ||
        die "no llvm-cov of LLVM $llvm found, which reads what rustc counts" "rustup component add llvm-tools" \
            "apt-get install llvm-$llvm"
    LLVM_COV="$(command -v "llvm-cov-$llvm")"
    LLVM_PROFDATA="$(command -v "llvm-profdata-$llvm")"
    export LLVM_COV LLVM_PROFDATA
fi

export VENV=.venv-coverage
VENV_PYTHON="$PWD/$VENV/bin/python"
scripts/venv.sh test release
out="$PWD/dist/coverage"
mkdir -p "$out"
export CARGO_TARGET_DIR="$CARGO_TARGET_DIR/coverage"
# Processes add to these eight files; one file for each of some thousand processes would fill a disk. Workers of Spark end without
# writing, so lines of Rust that they alone reach are not counted.
export LLVM_PROFILE_FILE_NAME=headgate-%8m.profraw
# Without any optimization the tests of a whole process run into their time limits.
export CARGO_PROFILE_DEV_OPT_LEVEL=1
own_builds
environment="$(cargo llvm-cov show-env --sh)"
eval "$environment"
cargo llvm-cov clean --workspace
failed=0
# pytest handles Ctrl-C itself and ends with a status, after which the shell would go on.
trap 'exit 130' INT
if ! (($#)); then
    say "cargo test, counted"
    cargo test --locked --workspace --exclude headgate-bindings --features headgate-exchange/failpoints || failed=1
fi
say "building the native module with counters"
# The module lies in the folder of the sources, so the next use of .venv must build its own again.
trap 'rm -f .venv/.stamps/native python/headgate/_native.abi3.so' EXIT
VIRTUAL_ENV="$PWD/$VENV" "$VENV/bin/maturin" develop --locked
scripts/class_archive.sh

say "pytest, counted"
export COVERAGE_FILE="$out/python"
"$VENV_PYTHON" -m coverage erase
# Processes that a test starts inherit the settings by `patch` in pyproject.toml.
if (($#)); then
    "$VENV_PYTHON" -m coverage run -m pytest -q "$@" || failed=1
else
    # Those on Spark by themselves, as their processes keep a session's threads.
    pytest=("$VENV_PYTHON" -m coverage run -m pytest -q -m "not soak" --dist loadfile --numprocesses 2)
    "${pytest[@]}" --ignore tests/spark tests || failed=1
    "${pytest[@]}" tests/spark || failed=1
fi
"$VENV_PYTHON" -m coverage combine -q
"$VENV_PYTHON" -m coverage json -q -o "$out/python.json"
cargo llvm-cov report --json --output-path "$out/rust.json"
"$VENV_PYTHON" scripts/holes.py "$out/python.json" "$out/rust.json" | tee "$out/holes.txt"
exit "$failed"
