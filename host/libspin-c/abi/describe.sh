#!/usr/bin/env bash
# Prints the binary interface that include/spin_client.h and spin.map of a folder declare (this library's), as abidw describes it. After
# functions or fields are added, rewrite the reference:
#
#   host/libspin-c/abi/describe.sh >host/libspin-c/abi/libspin.so.1.xml
#
# It describes a library in C with the header's functions and empty bodies. Types of the real library have Rust's names, depend on the
# compiler's version, and show what handles contain.
set -euo pipefail
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/..}"
to=$(mktemp -d)
trap 'rm -rf "$to"' EXIT
include=$PWD/include map=$PWD/spin.map
cd "$to"
{
    echo '#include <spin_client.h>'
    ${CC:-cc} -E -P "$include/spin_client.h" | tr '\n' ' ' | tr ';' '\n' |
        sed -nE 's/^ *((const )?[a-z0-9_]+ \*?spin_[a-z0-9_]+\(.*\)) *$/\1 { __builtin_trap(); }/p'
} >declared.c
# No function has a parameter of an enumeration's type: without these options they are left out.
${CC:-cc} -std=c11 -g -fno-eliminate-unused-debug-types -shared -fPIC -I "$include" declared.c -o libspin.so.1 \
    -Wl,-soname,libspin.so.1 -Wl,--version-script="$map"
abidw --load-all-types --no-architecture --no-corpus-path --no-comp-dir-path --no-show-locs libspin.so.1
