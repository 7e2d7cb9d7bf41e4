#!/usr/bin/env bash
# Runs the tests of the crates that need no NIC (abi, matcher, hpu-vm) as aarch64 programs under qemu's user emulation.
# Arguments are passed to the test programs.
#
# The standard library for aarch64 is the toolchain's (`rustup target add aarch64-unknown-linux-gnu`) or, without it,
# built from Debian's `rust-src` of exactly the compiler's version. If neither is available, the tests are skipped.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=aarch64-unknown-linux-gnu

skip() {
    echo "SKIPPED: aarch64 tests: $*"
    [ "${SPIN_REQUIRE_ALL:-}" != 1 ]
    exit
}

# Installs missing packages as root, or names them otherwise: the emulator and the C library for the target, and the
# compiler and the reference emulator for the tests themselves.
install_tools() {
    local missing=()
    command -v qemu-aarch64-static >/dev/null || missing+=(qemu-user-static)
    command -v aarch64-linux-gnu-gcc >/dev/null || missing+=(gcc-aarch64-linux-gnu)
    [ -e /usr/aarch64-linux-gnu/lib/libc.so.6 ] || missing+=(libc6-dev-arm64-cross)
    deploy/install-deps.sh test
    [ ${#missing[@]} -gt 0 ] || return 0
    [ "$(id -u)" = 0 ] || skip "missing packages: ${missing[*]} (as root: apt-get install ${missing[*]})"
    echo "installing Debian packages: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -q && apt-get install -y -q --no-install-recommends "${missing[@]}"; } >/dev/null ||
        skip "cannot install ${missing[*]}"
}

install_tools
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="timeout -k 5 1200 qemu-aarch64-static -L /usr/aarch64-linux-gnu"
# Emulated code is slow, so there are fewer random cases and programs, and some optimisation, which keeps the checks of a
# debug build.
export PROPTEST_CASES=${PROPTEST_CASES:-32} SPIN_FUZZ_PROGRAMS=${SPIN_FUZZ_PROGRAMS:-100} CARGO_PROFILE_DEV_OPT_LEVEL=1
build_std=()
if [ ! -d "$(rustc --print target-libdir --target "$target")" ]; then
    library=$(deploy/rust-src.sh) ||
        skip "no target $target in the toolchain (rustup target add $target)"
    # Enables an unstable feature of cargo with the stable compiler.
    export RUSTC_BOOTSTRAP=1 __CARGO_TESTS_ONLY_SRC_ROOT=$library
    build_std=(-Zbuild-std=std,panic_abort,test)
fi
# qemu keeps 25 MiB of its own for every 4 GiB ever reserved. Only those tests of hpu-vm run that make few spaces. A memory
# limit in KiB makes a test run out of memory rather than the machine; qemu then hangs.
ulimit -d $((8 << 20))
skips=(--skip the_interpreter_on_mapped_memory)
run_tests() { # CARGO_ARGUMENT...
    cargo test --locked --no-fail-fast "${build_std[@]}" --target "$target" "$@" -- "${skips[@]}" "${arguments[@]}"
}
arguments=("$@")
run_tests -p spin-abi -p spin-matcher
# Tests with hundreds of programs, each with a space of its own, are skipped too.
skips+=(--skip handlers_see_what_they_see_in_the_interpreter)
run_tests -p hpu-vm --lib --test loader --test qemu --test differential --test in_place
