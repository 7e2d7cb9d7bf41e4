#!/usr/bin/env bash
# Installs, as root, the missing Debian packages for the build, the demos, the tests or the benchmarks. Without root, names
# them and fails.
#
#   deploy/install-deps.sh build|demo|apps|test|bench|python
set -euo pipefail

purpose=${1:-}

# Each requirement: a command or a file that shows its presence, and the packages that contain it.
build=(
    "command:cc gcc"
    "command:pkg-config pkg-config"
    "header:libelf.h libelf-dev"
    "header:zlib.h zlib1g-dev"
    "header:linux/if_xdp.h linux-libc-dev"
    "handler-compiler clang-19 lld-19"
)
# Debian has the modules venv and ensurepip in a package of their own.
python=("${build[@]}" "file:/usr/bin/python3 python3" "python-venv python3-venv")
demo=("${build[@]}" "command:tshark tshark")
if [ "$(id -u)" = 0 ] && [ "${NIC:-veth}" = veth ]; then
    demo+=(
        "command:ip iproute2"
        "command:ping iputils-ping"
        "command:ethtool ethtool"
        "command:tcpdump tcpdump"
        "command:sysctl procps"
    )
fi
apps=("${build[@]}" "command:ip iproute2" "command:ethtool ethtool" "command:sysctl procps" "command:valgrind valgrind")
# Handlers in Rust need the sources of `core` too. rust-src.sh fetches them without an installation.
test=(
    "${demo[@]}"
    "${python[@]}"
    "command:c++ g++"
    "command:qemu-riscv32 qemu-user"
    "command:trafgen netsniff-ng"
    "command:valgrind valgrind"
    "command:mandoc mandoc"
    "command:abidiff abigail-tools"
    "command:riscv64-unknown-elf-gcc gcc-riscv64-unknown-elf"
    "file:/usr/lib/picolibc/riscv64-unknown-elf/lib/libc.a picolibc-riscv64-unknown-elf"
)
bench=(
    "${build[@]}"
    "command:strace strace"
    "command:valgrind valgrind"
    "command:objdump binutils"
    "command:ip iproute2"
    "command:ethtool ethtool"
    "command:dpdk-testpmd dpdk-dev librte-net-af-xdp23"
)

case $purpose in
    build) needs=("${build[@]}") ;;
    apps) needs=("${apps[@]}") ;;
    demo) needs=("${demo[@]}") ;;
    test) needs=("${test[@]}") ;;
    bench) needs=("${bench[@]}") ;;
    python) needs=("${python[@]}") ;;
    *) echo "usage: $0 build|demo|apps|test|bench|python" >&2; exit 2 ;;
esac

PATH=$PATH:/usr/sbin:/sbin

# spin-cc looks for clang 14 to 21 with the ld.lld of the same version.
has_handler_compiler() {
    local version
    for version in -21 -20 -19 -18 -17 -16 -15 -14 ""; do
        if command -v "clang$version" && command -v "ld.lld$version"; then return 0; fi
    done >/dev/null
    return 1
}

present() {
    case $1 in
        file:*) [ -e "${1#file:}" ] ;;
        command:*) command -v "${1#command:}" >/dev/null ;;
        header:*) [ -e "/usr/include/${1#header:}" ] || compgen -G "/usr/include/*/${1#header:}" >/dev/null ;;
        python-venv) python3 -c "import ensurepip, venv" 2>/dev/null ;;
        handler-compiler) has_handler_compiler ;;
    esac
}

if ! command -v cargo >/dev/null; then
    echo "cargo is missing: install Rust from https://rustup.rs; the toolchain in rust-toolchain.toml is then fetched" >&2
    exit 1
fi

missing=()
for need in "${needs[@]}"; do
    read -r proof packages <<<"$need"
    # shellcheck disable=SC2206 # the packages are words
    present "$proof" || missing+=($packages)
done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" != 0 ]; then
    echo "missing packages: ${missing[*]}" >&2
    echo "install them as root: apt-get install ${missing[*]}" >&2
    exit 1
fi
echo "installing Debian packages: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -q >/dev/null
apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null
