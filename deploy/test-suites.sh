#!/usr/bin/env bash
# Builds all test suites of the workspace, runs them one after the other, and prints a table of their times.
#
# A suite's budget, in seconds of CPU time, is in deploy/test-budgets.txt. It is for the machine on which the calibration loop takes
# REFERENCE seconds of CPU time; slower machines get more. With --enforce a suite over its budget is an error, otherwise a warning.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

REFERENCE=0.65
DEFAULT_BUDGET=5
CARGO=${CARGO:-cargo}
target=${CARGO_TARGET_DIR:-$PWD/target}
enforce=
[ "${1:-}" = --enforce ] && enforce=1
report=$target/test-suites.txt
TIMEFORMAT='%R %U %S'

# Seconds of CPU time of a fixed loop: how fast this machine is.
calibrate() {
    { time awk 'BEGIN { for (i = 0; i < 12000000; i++) x += i % 7 }'; } 2>&1 | awk '{ print $2 + $3 }'
}

# Prints a line for each test program: its path, its manifest, its kind and its name, separated by tabs.
suites() { # MESSAGES-OF-CARGO
    grep '"reason":"compiler-artifact"' "$1" | grep '"test":true},"features"' |
        sed -nE 's/.*"manifest_path":"([^"]*)".*"target":\{"kind":\["([^"]*)"[^}]*"name":"([^"]*)".*"executable":"([^"]*)".*/\4\t\1\t\2\t\3/p'
}

budget() { # SUITE
    awk -v suite="$1" -v default="$DEFAULT_BUDGET" '$1 == suite { found = $2 } END { print found ? found : default }' \
        deploy/test-budgets.txt
}

# Runs a command as a suite, and notes its times.
run() { # SUITE COMMAND...
    local suite=$1 seconds status real user system cpu limit note=
    shift
    echo "== $suite"
    { seconds=$( { time "$@" >&3 2>&4; } 2>&1 ); } 3>&1 4>&2
    status=$?
    read -r real user system <<<"$(tail -n 1 <<<"$seconds")"
    cpu=$(awk -v a="$user" -v b="$system" 'BEGIN { print a + b }')
    limit=$(awk -v budget="$(budget "$suite")" -v factor="$factor" 'BEGIN { print budget * factor }')
    if [ "$status" != 0 ]; then
        note=FAILED
        failed+=("$suite")
    elif awk -v cpu="$cpu" -v limit="$limit" 'BEGIN { exit !(cpu > limit) }'; then
        note="over its budget"
        over+=("$suite")
    fi
    printf '%-40s %8.1f %8.1f %8.1f  %s\n' "$suite" "$real" "$cpu" "$limit" "$note" >>"$report"
}

started=$SECONDS
mkdir -p "$target"
messages=$target/test-suites.json
"$CARGO" test --locked --workspace --no-run --message-format=json-render-diagnostics >"$messages" || exit
build=$((SECONDS - started))
list=$(suites "$messages")
# A suite that is not found would pass unseen. cargo names each program once, on a line of its own.
programs=$(grep -c '"executable":"[^"]*/deps/' "$messages")
[ "$(wc -l <<<"$list")" = "$programs" ] || { echo "of $programs test programs not all were found: $list" >&2; exit 1; }
factor=$(awk -v seconds="$(calibrate)" -v reference="$REFERENCE" 'BEGIN { f = seconds / reference; print (f > 1 ? f : 1) }')
failed=() over=()
printf '%-40s %8s %8s %8s\n' 'suite' 'seconds' 'CPU' 'budget' >"$report"
while IFS=$'\t' read -r program manifest kind name; do
    crate=$(basename "$(dirname "$manifest")")
    suite=$crate/$name
    [ "$kind" = test ] || suite=$crate
    [ "$kind" = bin ] && suite=$crate/bin/$name
    # As cargo runs it: in the folder of its package.
    run "$suite" env -C "$(dirname "$manifest")" CARGO_MANIFEST_DIR="$(dirname "$manifest")" "$program" --quiet
done <<<"$list"
run doc "$CARGO" test --locked --workspace --doc --quiet
# As a pipeline's first core receives, with all messages in its local share.
while IFS=$'\t' read -r program manifest kind name; do
    case "$kind $name" in
    "test handlers" | "test verdicts")
        SPIN_PIPELINE=1 run "pipeline/$name" env -C "$(dirname "$manifest")" "$program" --quiet
        ;;
    esac
done < <(grep -F "$PWD/engine/Cargo.toml" <<<"$list")

cat "$report"
awk -v build="$build" 'NR > 1 { real += $2; cpu += $3 } END { printf "%-40s %8.1f %8.1f\n%-40s %8d\n", "all suites", real, cpu, "their build", build }' "$report"
echo "machine: factor $factor"
[ "${#over[@]}" = 0 ] || echo "over their budget (deploy/test-budgets.txt): ${over[*]}"
[ "${#failed[@]}" = 0 ] || { echo "failed: ${failed[*]}"; exit 1; }
[ -z "$enforce" ] || [ "${#over[@]}" = 0 ]
