#!/usr/bin/env bash
# How long a driver takes, from its start to its end, that loads an image, translates its handlers and simulates 10,000 packets
# through libpspin: wall-clock time of each of some runs, the driver's output thrown away.
#
#   bench/pspin.sh [RUNS]
set -euo pipefail
cd "$(dirname "$0")/.."

runs=${1:-5}
library=${CARGO_TARGET_DIR:-target}/release
work=$(mktemp -d "${TMPDIR:-/tmp}/spin-bench-pspin.XXXXXX")
trap 'rm -rf "$work"' EXIT

handlers/sdk/bin/spin-cc --quiet --abi pspin host/libpspin/tests/relinked/programs/handlers.c -o "$work/handlers.elf"
cc -O2 -I host/libpspin/include host/libpspin/examples/generic_driver.c -o "$work/driver" \
    -L "$library" -lpspin -Wl,-rpath,"$(cd "$library" && pwd)"

measure() { # NAME OPTION... -- HANDLER...
    local name=$1 options=() start end run
    shift
    while [ "$1" != -- ]; do options+=("$1") && shift; done
    shift
    printf '%-44s' "$name"
    for ((run = 0; run < runs; run++)); do
        start=$(date +%s%N)
        "$work/driver" "${options[@]}" "$work/handlers.elf" "$@" >"$work/out"
        end=$(date +%s%N)
        grep -q '^released 10000$' "$work/out" || { echo "not all packets were released" >&2 && exit 1; }
        printf '%7d' $(((end - start) / 1000000))
    done
    echo ' ms'
}

measure '100 messages of 100 packets, 64 B, echoed' -m 100 -p 100 -s 64 -- echo_ph
measure '100 messages of 100 packets, 1024 B, echoed' -m 100 -p 100 -s 1024 -- echo_ph
measure '10000 messages of 1 packet, three handlers' -m 10000 -p 1 -s 64 -- count_ph count_hh count_th
