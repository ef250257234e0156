#!/usr/bin/env bash
# fuzz.sh [TARGET...] [--seconds N] [--keep]: run libFuzzer on each target (by default all of rust_core/fuzz), 600 s
# each. --keep adds inputs that reached new code to the checked-in corpus, minimised.
source "$(dirname "$0")/env.sh"

fuzz=rust_core/fuzz
seconds=600
keep=
targets=()
while (($#)); do
    case "$1" in
        --seconds) seconds="$2" && shift ;;
        --keep) keep=yes ;;
        *) targets+=("$1") ;;
    esac
    shift
done
((${#targets[@]})) || mapfile -t targets < <(cd "$fuzz/corpus" && ls)

scripts/rust.sh
command -v c++ >/dev/null || die "no C++ compiler found; libFuzzer needs one" "apt-get install g++"
host="$(rustc -vV | sed -n 's/^host: //p')"
# AddressSanitizer watches the unsafe code of dependencies, arrow above all. RUSTC_BOOTSTRAP opens -Z flags on stable.
export RUSTC_BOOTSTRAP=1
export RUSTFLAGS="--cfg fuzzing -Zsanitizer=address -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1"
build=(cargo build --locked --profile fuzz --package headgate-fuzz --target "$host" --bins)
say "${build[*]}"
"${build[@]}" --target-dir "$CARGO_TARGET_DIR/fuzz"

for target in "${targets[@]}"; do
    say "fuzzing $target for $seconds s"
    program="$CARGO_TARGET_DIR/fuzz/$host/fuzz/$target"
    found="$CARGO_TARGET_DIR/fuzz/corpus/$target"
    mkdir -p "$found"
    "$program" "$found" "$fuzz/corpus/$target" -max_total_time="$seconds" -max_len=2048 -timeout=10 \
        -rss_limit_mb=2048 -artifact_prefix="$fuzz/finding-$target-" -print_final_stats=1
    [[ -z "$keep" ]] || "$program" -set_cover_merge=1 -max_len=400 "$fuzz/corpus/$target" "$found"
done
