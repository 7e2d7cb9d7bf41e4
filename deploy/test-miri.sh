#!/usr/bin/env bash
# Runs under miri what it can run: the tests of abi, matcher and of hpu-vm's decoding, interpreter, loading and memory
# views over slices. Tests that map memory, take signals, run translated code or start other programs are beyond it.
# Arguments are passed to the test programs.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

if ! said=$(cargo +nightly miri --version 2>&1); then
    echo "SKIPPED: miri is not installed (rustup toolchain install nightly --component miri,rust-src): ${said%%$'\n'*}"
    exit 0
fi
echo "$said"

# Random cases are few, for miri is some hundred times slower; without isolation proptest may look for its regressions.
export PROPTEST_CASES=${PROPTEST_CASES:-4} MIRIFLAGS=${MIRIFLAGS:--Zmiri-disable-isolation}

# A crate's unit tests, without those named: they walk through whole tables, which takes minutes here.
unit_tests() { # CRATE [SKIP...]
    local crate=$1 skip
    local arguments=()
    shift
    for skip in "$@"; do arguments+=(--skip "$skip"); done
    cargo +nightly miri test --locked -p "$crate" --lib -- "${arguments[@]}" "${extra[@]}"
}

extra=("$@")
unit_tests spin-abi the_longest_ends_with_its_last_byte
unit_tests spin-matcher the_hash_is_stable_and_spreads too_many_tests_are_refused
unit_tests hpu-vm every_half_word files_and_names_are_bounded memory:: trap:: jit::
