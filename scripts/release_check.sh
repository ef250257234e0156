#!/usr/bin/env bash
# release_check.sh: build wheel, sdist and the wheel without the native module twice, in two clones of the last commit, and check
# all that an index, a packager or a user would.
source "$(dirname "$0")/env.sh"

[[ -z "$(git status --porcelain)" ]] ||
    die "the folder has changes that are in no commit, and a release is one of a commit" "git commit" "git stash --all"
scripts/rust.sh
scripts/java.sh
scripts/venv.sh wheel release
VENV="$(cd "$VENV" && pwd)"
export VENV
PATH="$VENV/bin:$PATH"

run() {
    say "$*"
    "$@"
}

run python scripts/release.py check
run validate-pyproject pyproject.toml
run towncrier build --draft --version next
run check-sdist --no-isolation
# A rating below 10 fails. There is no address of people or of a home page yet, and pyroma takes Markdown for ReST.
run pyroma --min 10 --skip-tests AuthorEmail,Url,ValidREST .

# packages FOLDER: build all packages of a clone into its folder dist.
packages() (
    cd "$1"
    scripts/wheel.sh
    scripts/fallback.sh
    scripts/sdist.sh
)

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
for clone in first second; do
    say "building all packages in a clone: $clone"
    git clone -q . "$work/$clone"
done
packages "$work/first"
CARGO_TARGET_DIR="$work/second/build" packages "$work/second"
rm -rf "$work/second/build"
diff --recursive --brief "$work/first/dist" "$work/second/dist" ||
    die "two builds differ" "compare the members of both, then the native modules by diffoscope"
say "both builds of all packages have the same bytes"

rm -rf dist
cp -r "$work/first/dist" .
run scripts/audit.sh

# The blocks of both READMEs, from each package in a clean environment.
run python scripts/check_wheel.py dist/*-abi3-*.whl
run scripts/fallback.sh --check
run scripts/sdist.sh --check
run ls -l dist
