#!/usr/bin/env bash
# fuzz.sh [TARGET...] [--seconds N] [--keep]: run each target for 600 s: libFuzzer on those of rust_core/fuzz, and two that
# choose by a random seed: lent (a peer of this host that lies about shared memory) and control (messages to the driver).
# --keep adds inputs that reached new code to the checked-in corpus, minimised.
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
((${#targets[@]})) || mapfile -t targets < <(cd "$fuzz/corpus" && ls && printf '%s\n' lent control)

# by_seed TARGET: run a target that needs no libFuzzer; fails if there is no such target.
by_seed() {
    case "$1" in
        lent)
            HEADGATE_HOSTILE_SECONDS="$seconds" HEADGATE_HOSTILE_SEED="$seed" cargo test --locked --release \
                --package headgate-exchange --lib -- --nocapture simulator::hostile
            ;;
        control)
            scripts/develop.sh
            HEADGATE_TEST_FUZZ_SECONDS="$seconds" HEADGATE_TEST_SEED="$seed" "$VENV_PYTHON" -m pytest -q -s \
                --timeout $((seconds + 120)) tests/driver/test_control_bytes.py
            ;;
        *) return 1 ;;
    esac
}

# build_fuzzers: compile the programs of rust_core/fuzz, once.
build_fuzzers() {
    scripts/rust.sh
    command -v c++ >/dev/null || die "no C++ compiler found; libFuzzer needs one" "apt-get install g++"
    # AddressSanitizer watches the unsafe code of dependencies, arrow above all. RUSTC_BOOTSTRAP opens -Z flags on stable.
    local flags="--cfg fuzzing -Zsanitizer=address -Cpasses=sancov-module \
        -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
        -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1"
    local build=(cargo build --locked --profile fuzz --package headgate-fuzz --target "$host" --bins)
    say "${build[*]}"
    RUSTC_BOOTSTRAP=1 RUSTFLAGS="$flags" "${build[@]}" --target-dir "$CARGO_TARGET_DIR/fuzz"
}

host="$(rustc -vV | sed -n 's/^host: //p')"
seed="$RANDOM$RANDOM"
built=
for target in "${targets[@]}"; do
    say "fuzzing $target for $seconds s"
    if [[ ! -d "$fuzz/corpus/$target" ]]; then
        by_seed "$target" || die "the target $target failed, or there is none" "run it again with the seed $seed"
        continue
    fi
    [[ -n "$built" ]] || build_fuzzers
    built=yes
    program="$CARGO_TARGET_DIR/fuzz/$host/fuzz/$target"
    found="$CARGO_TARGET_DIR/fuzz/corpus/$target"
    mkdir -p "$found"
    "$program" "$found" "$fuzz/corpus/$target" -max_total_time="$seconds" -max_len=2048 -timeout=10 \
        -rss_limit_mb=2048 -artifact_prefix="$fuzz/finding-$target-" -print_final_stats=1
    [[ -z "$keep" ]] || "$program" -set_cover_merge=1 -max_len=400 "$fuzz/corpus/$target" "$found"
done
