#!/usr/bin/env bash
# Plants faults with cargo-mutants and runs the tests that should fail: see `make mutants`.
#
#   deploy/mutants.sh [GROUP...]      the groups below (default: all)
#
# Environment:
#   SPIN_MUTANTS        about how many mutants of each group (default 20; all: 0)
#   SPIN_MUTANTS_SEED   which of them (default: another sample each day)
#
# A mutant that no test finds is an error, unless deploy/mutants-kept.txt says why it may stay.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

CARGO=${CARGO:-cargo}
number=${SPIN_MUTANTS:-20}
seed=${SPIN_MUTANTS_SEED:-$(($(date +%s) / 86400))}
out=$PWD/target/mutants
kept=deploy/mutants-kept.txt

declare -A files tests
files[mpq]='pspin/src/mpq/*.rs'
tests[mpq]='--test-package spin-pspin --test-package spin-engine -- --lib --test mpq_oracle --test handlers --test sharing'
files[messages]='engine/src/message/*.rs'
files[scheduler]='engine/src/sched/*.rs'
files[fast_path]='engine/src/worker/fast_path.rs'
tests[messages]='--test-package spin-engine'
tests[scheduler]=${tests[messages]} tests[fast_path]=${tests[messages]}
files[commands]='pspin/src/hpu/command/*.rs'
tests[commands]='--test-package spin-pspin --test-package spin-engine'
files[install]='engine/src/install/*.rs engine/src/control/install/*.rs'
files[server]='engine/src/control/server/*.rs'
tests[install]='--test-package spin-engine --test-package spinctl --test-package spin-tests -- --lib --bins --test handlers --test sandbox --test replace --test steering --test control --test daemon'
tests[server]=${tests[install]}
files[matcher]='matcher/src/*.rs matcher/src/text/*.rs'
tests[matcher]='--test-package spin-matcher --test-package spin-engine -- --lib --test oracle --test keys --test headers --test fpspin --test text --test steering'
files[rings]='sync/src/*.rs nic/src/afxdp/ring.rs'
tests[rings]='--test-package spin-sync --test-package spin-nic --test-package spin-engine -- --lib --test afxdp --test pipeline_mode --test overflow'

"$CARGO" mutants --version >/dev/null 2>&1 || {
    echo "mutants: installing cargo-mutants"
    "$CARGO" install cargo-mutants --locked --quiet || exit
}

# Packages from the registry are compiled once for all groups.
export CARGO_TARGET_DIR=$PWD/target/mutants-build
mkdir -p "$out"
missed=0 found=0
for group in "${@:-mpq messages scheduler fast_path commands install server matcher rings}"; do
    for name in $group; do
        [ -n "${files[$name]:-}" ] || { echo "mutants: no group $name; there are: ${!files[*]}" >&2; exit 2; }
        # Texts; models for loom, which are no part of the program; what only makes it faster.
        selection=(--exclude-re 'fmt::|for .*Error|tracing|modelled|prefetch|ask_ahead')
        for pattern in ${files[$name]}; do selection+=(--file "$pattern"); done
        total=$("$CARGO" mutants "${selection[@]}" --list 2>/dev/null | wc -l)
        shards=$((number > 0 && total > number ? (total + number - 1) / number : 1))
        echo "== $name: every ${shards}th of $total mutants, the $((seed % shards)). first"
        # shellcheck disable=SC2086 # several words
        "$CARGO" mutants "${selection[@]}" --shard "$((seed % shards))/$shards" --sharding round-robin --baseline skip --timeout 240 \
            --no-times --output "$out/$name" ${tests[$name]}
        status=$?
        # 0: all found; 2: some not; 3: some by timeout. Others are no result.
        case $status in 0 | 2 | 3) ;; *) echo "mutants: cargo mutants failed ($status)" >&2; exit "$status" ;; esac
        found=$((found + $(cat "$out/$name"/mutants.out/{caught,timeout}.txt | wc -l)))
        while IFS= read -r mutant; do
            grep -qxF -- "$mutant" <(sed '/^#/d; /^ /d' "$kept") && continue
            echo "not found: $mutant"
            missed=$((missed + 1))
        done < <(sed -E 's/:[0-9]+:[0-9]+: /: /' "$out/$name/mutants.out/missed.txt")
    done
done
echo "found: $found"
echo "not found, without a reason in $kept: $missed"
[ "$missed" = 0 ]
