#!/usr/bin/env bash
# Shows that the engine neither allocates, nor enters the kernel, nor reads a clock or locks per packet, and fails if it does.
# Counts, not timings: of two runs that differ in their number of packets alone. By the program's own allocator, by strace, by a
# library that is loaded before the C library's, and by callgrind.
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
    # The watchdog's timer ticks by the clock, with these two each time.
    awk '$1 ~ /^[0-9]+$/ && $2 !~ /^(total|timer_settime|rt_sigreturn)$/ { all += $1 } END { print all }' "$folder/calls"
}
polls=$(($(field polls "$(run "$long")") - $(field polls "$(run "$short")")))
check "in $polls polls, but the watchdog's" $(($(calls "$long") - $(calls "$short"))) 100

echo "Library calls, by which $long packets exceed $short"
cc -O2 -fPIC -shared -o "$folder/count.so" "$(dirname "$0")/count.c" -ldl
counted() { LD_PRELOAD=$folder/count.so "$proof" --packets "$1" 2>&1 >/dev/null; }
few=$(counted "$short")
many=$(counted "$long")
for name in clock_gettime pthread_mutex_lock malloc; do
    # A turn takes a batch of 64 packets and reads the clock four times.
    if [ $name = clock_gettime ]; then most=$((polls * 6)); else most=100; fi
    check "$name in $polls polls" $(($(field "$name" "$many") - $(field "$name" "$few"))) "$most"
done

few=${FEW:-5000}
more=${MORE:-25000}
echo "Calls by callgrind, by which $more packets exceed $few"
here=$(dirname "$0")
# profile PACKETS: what was called how often. Handlers' code is made while it runs.
profile() {
    valgrind --tool=callgrind --smc-check=all-non-file --demangle=no --callgrind-out-file="$folder/profile" \
        "$proof" --warm-up 5000 --packets "$1" 2>"$folder/valgrind" || { cat "$folder/valgrind" >&2; return 1; }
    awk -f "$here/calls.awk" "$folder/profile" >"$folder/calls-$1"
}
# called PATTERN PACKETS: calls of all functions whose names match.
called() { awk -v pattern="$1" '$2 ~ pattern { sum += $1 } END { print sum + 0 }' "$folder/calls-$2"; }
much=$(profile "$more")
little=$(profile "$few")
polls=$(($(field polls "$much") - $(field polls "$little")))
packets=$(($(field packets "$much") - $(field packets "$little")))
# As it must: each packet's handler is run. Translated code has no name but its address.
runs=$(($(called '^0x[0-9a-f]+$' "$more") - $(called '^0x[0-9a-f]+$' "$few")))
check "packets whose handler was not seen to run" $((packets - runs)) 0
for name in clock_gettime pthread_mutex_lock malloc; do
    case $name in
    clock_gettime) most=$((polls * 6)) pattern='^(__)?clock_gettime' ;;
    # The engine's own locks are not the C library's.
    pthread_mutex_lock) most=10 pattern='pthread_mutex_lock|sync.*(mutex|Mutex|RwLock|rwlock).*lock' ;;
    # Setting up takes as many whatever the packets; what hashes at random may differ by some.
    malloc) most=10 pattern='^(malloc|calloc|realloc|memalign|posix_memalign)$' ;;
    esac
    check "$name in $polls polls" $(($(called "$pattern" "$more") - $(called "$pattern" "$few"))) "$most"
done
# The counter itself is an instruction: functions that have it, of those that ran.
objdump -d --no-show-raw-insn "$proof" |
    awk '/^[0-9a-f]+ </ { name = $2 } /\trdtscp?/ { print name }' | tr -d '<>:' | sort -u >"$folder/rdtsc"
awk '{ print $2 }' "$folder/calls-$more" | sed "s/'.*//" | sort -u >"$folder/ran"
check "functions with rdtsc, $(wc -l <"$folder/rdtsc") in the program, that ran" "$(comm -12 "$folder/rdtsc" "$folder/ran" | wc -l)" 0
exit "$failed"
