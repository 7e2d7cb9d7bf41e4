#!/usr/bin/env bash
# Compares the engine of this tree with that of another commit: builds both, and measures them in alternating rounds.
#
#   bench/compare.sh COMMIT      such as HEAD~1
#
# environment: ROUNDS   rounds of each (10)
#              FILTER   only throughput cases whose NAME/SIZE contains this text
set -euo pipefail
cd "$(dirname "$0")/.."

commit=${1:-}
[ -n "$commit" ] || { echo "usage: make bench-compare BASE=COMMIT" >&2; exit 2; }
git rev-parse --quiet --verify "$commit^{commit}" >/dev/null || { echo "bench-compare: $commit is no commit" >&2; exit 2; }
rounds=${ROUNDS:-10}
work=$(mktemp -d)
tree=$work/tree
cleanup() {
    git worktree remove --force "$tree" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT

git worktree add --quiet --detach "$tree" "$commit"
# Packages from the registry are compiled once; those of the workspace differ by their folders.
(cd "$tree" && CARGO_TARGET_DIR=$OLDPWD/target "${CARGO:-cargo}" build --release --locked --quiet -p spin-bench --bin spin-bench-engine)
cp target/release/spin-bench-engine "$work/base"
"${CARGO:-cargo}" build --release --locked --quiet -p spin-bench --bins
cp target/release/spin-bench-engine "$work/new"

for ((round = 1; round <= rounds; round++)); do
    echo "round $round of $rounds"
    for side in base new; do
        "$work/$side" --only throughput ${FILTER:+--filter "$FILTER"} --rounds 1 --packets 300000 --json "$work/$side-$round.json" >/dev/null
    done
done
target/release/spin-bench-compare --base "$work"/base-*.json --new "$work"/new-*.json
