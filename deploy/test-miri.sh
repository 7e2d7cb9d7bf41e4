#!/usr/bin/env bash
# Runs the tests that miri supports: those of abi, matcher, and hpu-vm's decoding, interpreter, loading and memory views
# over slices. miri cannot map memory, handle signals, run translated code or start other programs.
# Arguments are passed to the test programs.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

if ! said=$(cargo +nightly miri --version 2>&1); then
    echo "SKIPPED: miri is not installed (rustup toolchain install nightly --component miri,rust-src): ${said%%$'\n'*}"
    [ "${SPIN_REQUIRE_ALL:-}" != 1 ]
    exit
fi
echo "$said"

# Few random cases, since miri is some hundred times slower. Isolation is off, so that proptest can read its regressions.
export PROPTEST_CASES=${PROPTEST_CASES:-4} MIRIFLAGS=${MIRIFLAGS:--Zmiri-disable-isolation}

# Runs a crate's unit tests except the named ones, which iterate over complete tables and would take minutes.
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
