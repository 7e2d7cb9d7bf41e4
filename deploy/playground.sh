#!/usr/bin/env bash
# A playground for handlers: a veth between two network namespaces, spind on one end with udp_pingpong installed, and a
# shell on the other. Needs root and `make build`; removes everything when the shell exits.
#
#   deploy/playground.sh              an interactive shell
#   deploy/playground.sh 'COMMAND'    runs one command line there
#
# In the shell, `spin-say TEXT` sends a datagram and prints the answer. `spin-reload` recompiles udp_pingpong and replaces
# the installed one. `spinctl` is connected to spind.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/demo-lib.sh"

usage() {
    cat <<'TEXT'
Usage: deploy/playground.sh [COMMAND]
Starts spind with udp_pingpong between two network namespaces, and a shell in the client's.
With COMMAND it runs that command line there instead. Needs root and `make build`.
In the shell: spin-say TEXT, spin-reload, spinctl ...
TEXT
}

case "${1:-}" in
-h | --help) usage; exit ;;
-*) usage >&2; exit 2 ;;
esac

client_ns=spin-play-c-$$ server_ns=spin-play-s-$$
[ "$(id -u)" = 0 ] || die 'needs root (namespaces, XDP)'
need ip=iproute2 ethtool=ethtool
need_built spind spinctl

begin "$client_ns" "$server_ns"

"$here/nic-setup.sh" veth-up "$client_ns" "$server_ns" 78
ip netns exec "$server_ns" "$bin/spind" --iface server --socket "$work/spind.sock" >"$work/spind.log" 2>&1 &
started+=("$!")
eventually spind_is_up || { cat "$work/spind.log" >&2; die 'spind does not start'; }

cat >"$work/shell.rc" <<RC
PS1='spin> '
spinctl() { "$bin/spinctl" --socket "$work/spind.sock" "\$@"; }
spin-say() {
    [ \$# -gt 0 ] || { echo "usage: spin-say TEXT" >&2; return 2; }
    exec 3<>/dev/udp/10.78.0.2/9999
    printf %s "\$*" >&3
    timeout 2 dd bs=2048 count=1 status=none <&3 || echo "no answer"
    exec 3>&-
    echo
}
spin-reload() {
    "$sdk/bin/spin-cc" "$root/handlers/udp_pingpong/udp_pingpong.c" -o "$work/udp_pingpong.elf" || return
    spinctl rm udp_pingpong 2>/dev/null || true
    spinctl install "$work/udp_pingpong.elf" --rule 'udp dport 9999'
}
spin-reload
RC

if [ $# -gt 0 ]; then
    ip netns exec "$client_ns" bash -c ". '$work/shell.rc'; $1"
else
    echo "spind serves 10.78.0.2; try: spin-say hello, ping 10.78.0.2 (the kernel answers), spinctl stats; exit ends it"
    ip netns exec "$client_ns" bash --rcfile "$work/shell.rc" -i
fi
