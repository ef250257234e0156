#!/usr/bin/env bash
# audit.sh: check the packages that lie in dist with the tools of an index and of packagers: metadata, contents, the ABI of Python,
# the platform, the licences of all crates.
source "$(dirname "$0")/env.sh"

scripts/rust.sh
scripts/venv.sh wheel release
VENV="$(cd "$VENV" && pwd)"
PATH="$VENV/bin:$PATH"

run() {
    say "$*"
    "$@"
}

shopt -s nullglob
wheels=(dist/*.whl)
packages=("${wheels[@]}" dist/*.tar.gz)
((${#packages[@]})) || die "no package lies in dist" "make wheel" "make release-check"
run twine check --strict "${packages[@]}"
((!${#wheels[@]})) || run check-wheel-contents "${wheels[@]}"
for wheel in dist/*-abi3-*.whl; do
    run abi3audit --strict "$wheel"
    say "auditwheel show $wheel"
    found="$(auditwheel show --json "$wheel" | python -c 'import json, sys; print(json.load(sys.stdin)["overall_tag"])')"
    tag="${wheel##*-abi3-}" && tag="${tag%.whl}"
    # A wheel that fits an older libc too is as good.
    [[ "${found%%_*}" == "${tag%%_*}" && "$(printf '%s\n' "$found" "$tag" | sort -V | head -n 1)" == "$found" ]] ||
        die "the native module fits $found, and not $tag" "auditwheel show $wheel"
    say "the native module fits $found"
    run python scripts/check_crates.py "$wheel"
done
