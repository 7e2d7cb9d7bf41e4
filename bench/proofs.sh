#!/usr/bin/env bash
# Shows that the engine neither allocates, nor enters the kernel, nor reads a clock or locks per packet, and fails if it does.
# Counts, not timings: of two runs that differ in their number of packets alone.
set -euo pipefail

proof=${SPIN_BENCH_PROOF:-target/release/spin-bench-proof}
short=${SHORT:-100000}
long=${LONG:-1100000}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0
[ -x "$proof" ] || { echo "$proof is missing: make bench-proofs builds it" >&2; exit 1; }

# check WHAT FOUND MOST: says what was found, and remembers if it is too much.
check() {
    local verdict=ok
    # What was not counted is not proved.
    if ! [[ $2 =~ ^-?[0-9]+$ ]] || [ "$2" -gt "$3" ]; then verdict=FAILED; failed=1; fi
    printf '%-44s %12s  at most %10d  %s\n' "$1" "$2" "$3" "$verdict"
}

# run PACKETS [CASE]: what the engine says of that many packets.
run() { "$proof" --case "${2:-empty/64}" --packets "$1"; }

# field NAME LINE: the number behind a name.
field() { sed -E "s/.*\b$1 ([0-9]+).*/\1/" <<<"$2"; }

echo "Allocations of $long packets after warm-up"
for case in empty/64 message/64 datagrams/64 pingpong/64 aggregate/1024; do
    check "$case" "$(field allocations "$(run "$long" "$case")")" 0
done

echo "System calls, by which $long packets exceed $short"
calls() {
    strace -c -f -U calls,name -o "$folder/calls" "$proof" --packets "$1" >/dev/null
    awk '$2 == "total" { print $1 }' "$folder/calls"
}
# The watchdog's timer ticks by the clock, with two calls each time: less than one in four turns, which are a batch each.
turns=$(($(field turns "$(run "$long")") - $(field turns "$(run "$short")")))
check "in $turns turns" $(($(calls "$long") - $(calls "$short"))) $((turns / 4))

echo "Library calls, by which $long packets exceed $short"
cc -O2 -fPIC -shared -o "$folder/count.so" "$(dirname "$0")/native/count.c" -ldl
counted() { LD_PRELOAD=$folder/count.so "$proof" --packets "$1" 2>&1 >/dev/null; }
few=$(counted "$short")
many=$(counted "$long")
for name in clock_gettime pthread_mutex_lock malloc; do
    # A turn takes a batch of 64 packets and reads the clock four times.
    if [ $name = clock_gettime ]; then most=$((turns * 6)); else most=100; fi
    check "$name in $turns turns" $(($(field "$name" "$many") - $(field "$name" "$few"))) "$most"
done
exit "$failed"
