#!/usr/bin/env bash
# Tests the result of `make install`: the installed compiler builds an image that the installed spind accepts.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
to=$(mktemp -d)
trap 'kill "${spind:-}" 2>/dev/null || true; rm -rf "$to"' EXIT
make --no-print-directory install PROFILE=dev DESTDIR="$to" PREFIX=/opt/spin >"$to/log" || { cat "$to/log"; exit 1; }
bin=$to/opt/spin/bin
cp handlers/udp_pingpong/udp_pingpong.c "$to/reply.c"
(cd "$to" && "$bin/spin-cc" reply.c -o reply.elf --quiet)
cp handlers/rust/examples/udp_echo.rs "$to/echo.rs"
# Build products are kept in the repository's target folder for later runs.
(cd "$to" && CARGO_TARGET_DIR=$OLDPWD/target "$bin/spin-rustc" echo.rs -o echo.elf)
"$bin/spind" --nic loopback --socket "$to/spind.sock" 2>"$to/spind.log" >&2 &
spind=$!
for _ in $(seq 100); do [ -S "$to/spind.sock" ] && break; sleep 0.1; done
"$bin/spinctl" --socket "$to/spind.sock" install "$to/reply.elf" --rule 'udp dport 9999' | grep -q 'installed context 1'
"$bin/spinctl" --socket "$to/spind.sock" install "$to/echo.elf" --rule 'udp dport 9998' | grep -q 'installed context 2'
"$bin/spinctl" --socket "$to/spind.sock" install "$to/opt/spin/lib/spin/handlers/icmp_echo.elf" --rule 'icmp echo' | grep -q 'installed context 3'
grep -q '^ExecStart=/opt/spin/bin/spind ' "$to/opt/spin/lib/systemd/system/spind.service"
grep -q '/opt/spin/lib/spin/handlers/' "$to/etc/spin/spind.toml"
# Host programs find headers and libraries, by the names that are linked and by those that are loaded.
lib=$to/opt/spin/lib include=$to/opt/spin/include
cc -I "$include/spin" host/libfpspin/examples/echo.c -o "$to/echo" -L "$lib" -lfpspin -Wl,-rpath,"$lib"
cc -I "$include/spin" host/libpspin/tests/relinked/programs/constants.c -o "$to/pspin" -L "$lib" -lpspin -Wl,-rpath,"$lib"
cc -I "$include/spin-fpspin" host/libpspin/tests/relinked/programs/constants.c -o "$to/fpspin" -L "$lib" -lpspin-fpspin -Wl,-rpath,"$lib"
said=$("$to/echo" 2>&1; "$to/pspin"; "$to/fpspin")
for line in 'usage: echo DEVICE HANDLERS.elf COUNT' 'NUM_CLUSTERS 4' 'NUM_CLUSTERS 2'; do grep -qx "$line" <<<"$said"; done
# Programs and functions have manual pages.
for page in man8/spind.8 man1/spinctl.1; do
    [ -f "$to/opt/spin/share/man/$page" ] || { echo "$page is not installed"; exit 1; }
done
for name in $(nm -D --defined-only "$lib/libspin.so.1" | sed -nE 's/.* T (spin_[a-z0-9_]+).*/\1/p') libspin; do
    grep -qE "^\.Nm $name( ,)?$" "$to/opt/spin/share/man/man3/$name.3" || { echo "$name has no manual page"; exit 1; }
done
PKG_CONFIG_PATH="$lib/pkgconfig" pkg-config --validate libspin
[ "$(PKG_CONFIG_PATH="$lib/pkgconfig" pkg-config --variable=prefix libspin)" = /opt/spin ] || { echo "libspin.pc has another prefix"; exit 1; }
# pkg-config puts the folder of this test before all paths.
flags=$(PKG_CONFIG_PATH="$lib/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$to" pkg-config --cflags --libs libspin)
# shellcheck disable=SC2086 # the flags are words
cc host/libspin-c/examples/count_sources.c -o "$to/count_sources" $flags -Wl,-rpath,"$lib"
said=$(PKG_CONFIG_PATH="$lib/pkgconfig" pkg-config --modversion libspin; "$to/count_sources" "$to/spind.sock" "$to/echo.elf" "$to/none.pcap" 'udp dport 9997' 2>&1 || true)
for line in "$("$bin/spind" --version | sed 's/.* //')" "$to/none.pcap: No such file or directory"; do grep -qx "$line" <<<"$said" || { echo "libspin: $said"; exit 1; }; done
[ "$(readlink "$lib/libspin.so")" = libspin.so.1 ] || { echo "libspin.so is no link to libspin.so.1"; exit 1; }
[ -f "$lib/libspin.a" ] || { echo "there is no libspin.a"; exit 1; }
readelf -d "$to/count_sources" | grep -q 'NEEDED.*\[libspin.so.1\]'
"$bin/spin-pktgen" --help | grep -q "^Send test traffic on an interface"
"$bin/spin-impair" --help | grep -q "^Relay frames between two interfaces"
deploy/playground.sh --help | grep -q '^Usage: deploy/playground.sh'
if [ "$(id -u)" = 0 ]; then
    said=$(SPIN_BIN=target/debug deploy/playground.sh 'spin-say hello; spin-say 2>&1 || echo "status $?"' 2>"$to/playground.log") || { cat "$to/playground.log"; exit 1; }
    grep -q '^hello$' <<<"$said" && grep -q '^usage: spin-say TEXT$' <<<"$said" && grep -q '^status 2$' <<<"$said" || { echo "playground: $said"; exit 1; }
elif [ "${SPIN_REQUIRE_ALL:-}" = 1 ]; then
    echo "SPIN_REQUIRE_ALL=1: the playground needs root"
    exit 1
else
    echo "SKIPPED: the playground needs root"
fi
echo "what make install installs works"
