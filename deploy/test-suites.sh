#!/usr/bin/env bash
# Builds all test suites of the workspace, runs two at a time, and prints a table of their times.
#
# A suite's budget, in seconds of CPU time, is in deploy/test-budgets.txt. It is for the machine on which the calibration loop takes
# REFERENCE seconds of CPU time; slower machines get more. With --enforce a suite over its budget is an error, otherwise a warning.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

LANES=2
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

# Runs a command as a suite, prints what it printed, and notes its times.
run() { # SUITE COMMAND...
    local suite=$1 seconds status real user system cpu limit note='' output
    shift
    output=$(mktemp "$target/test-suite.XXXXXX")
    seconds=$( { time "$@" >"$output" 2>&1 </dev/null; } 2>&1 )
    status=$?
    { echo "== $suite" && cat "$output"; } | flock "$report" cat
    rm -f "$output"
    read -r real user system <<<"$(tail -n 1 <<<"$seconds")"
    cpu=$(awk -v a="$user" -v b="$system" 'BEGIN { print a + b }')
    limit=$(awk -v budget="$(budget "$suite")" -v factor="$factor" 'BEGIN { print budget * factor }')
    if [ "$status" != 0 ]; then
        note=FAILED
    elif awk -v cpu="$cpu" -v limit="$limit" 'BEGIN { exit !(cpu > limit) }'; then
        note='over its budget'
    fi
    printf '%-40s %8.1f %8.1f %8.1f  %s\n' "$suite" "$real" "$cpu" "$limit" "$note" >>"$report"
}

# Adds a suite to those that are to run.
add() { # SUITE COMMAND...
    printf '%s\t%s\n' "$(budget "$1")" "$(printf '%q ' "$@")" >>"$queue"
}

started=$SECONDS
mkdir -p "$target"
queue=$(mktemp)
trap 'rm -f "$queue"' EXIT
messages=$target/test-suites.json
"$CARGO" test --locked --workspace --no-run --message-format=json-render-diagnostics >"$messages" || exit
build=$((SECONDS - started))
list=$(suites "$messages")
# A suite that is not found would pass unseen. cargo names each program once, on a line of its own.
programs=$(grep -c '"executable":"[^"]*/deps/' "$messages")
[ "$(wc -l <<<"$list")" = "$programs" ] || { echo "of $programs test programs not all were found: $list" >&2; exit 1; }
factor=$(awk -v seconds="$(calibrate)" -v reference="$REFERENCE" 'BEGIN { f = seconds / reference; print (f > 1 ? f : 1) }')
printf '%-40s %8s %8s %8s\n' 'suite' 'seconds' 'CPU' 'budget' >"$report"
while IFS=$'\t' read -r program manifest kind name; do
    crate=$(basename "$(dirname "$manifest")")
    suite=$crate/$name
    [ "$kind" = test ] || suite=$crate
    [ "$kind" = bin ] && suite=$crate/bin/$name
    # As cargo runs it: in the folder of its package.
    environment=(env -C "$(dirname "$manifest")" CARGO_MANIFEST_DIR="$(dirname "$manifest")")
    add "$suite" "${environment[@]}" "$program" --quiet
    case "$crate $kind $name" in
        # As a pipeline's first core receives, with all messages in its local share.
        "engine test handlers" | "engine test verdicts") add "pipeline/$name" "${environment[@]}" SPIN_PIPELINE=1 "$program" --quiet ;;
    esac
    case "$crate $kind $name" in
        # Packets arrive at the first of eight units, and run in the last.
        "engine test handlers" | "engine test verdicts" | "engine test replace" | "engine test accounts" | "engine test packet_mode")
            add "units/$name" "${environment[@]}" SPIN_UNITS=8 "$program" --quiet ;;
    esac
done <<<"$list"
add doc "$CARGO" test --locked --workspace --doc --quiet
add loom make --no-print-directory loom
add install deploy/test-install.sh

# Those that take long come first, so that the lanes end at about the same time.
running=0
while IFS=$'\t' read -r _ suite; do
    [ "$running" -lt "$LANES" ] || { wait -n; running=$((running - 1)); }
    eval "run $suite" &
    running=$((running + 1))
done < <(sort -rn "$queue")
wait

head -1 "$report"
tail -n +2 "$report" | sort
awk -v build="$build" -v whole="$((SECONDS - started))" '
    NR > 1 { real += $2; cpu += $3 }
    END { printf "%-40s %8.1f %8.1f\n%-40s %8d\n%-40s %8d\n", "all suites", real, cpu, "their build", build, "build and suites, two at a time", whole }
' "$report"
echo "machine: factor $factor"
over=$(awk '/over its budget$/ { print $1 }' "$report")
failed=$(awk '/FAILED$/ { print $1 }' "$report")
[ -z "$over" ] || echo "over their budget (deploy/test-budgets.txt):" $over
[ -z "$failed" ] || { echo "failed:" $failed; exit 1; }
[ -z "$enforce" ] || [ -z "$over" ]
