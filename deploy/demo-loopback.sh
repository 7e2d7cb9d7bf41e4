#!/usr/bin/env bash
# The demo without root. A capture of a real ping and UDP session is replayed through `spind --nic loopback`, and the
# replies are checked by tshark and byte for byte. Exits 0 only if all checks passed, and leaves no files behind, except
# the replies if OUT names a file for them.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/demo-lib.sh"

session=$root/tests/captures/session.pcap
server_mac=02:00:00:00:00:02

need tshark=tshark
need_built spind spinctl spin-traffic
need_compiler

begin

replies_are_none() { [ "$(tshark -n -r "$1" 2>/dev/null | wc -l)" = 0 ]; }

build_handlers
say 'starting spind --nic loopback, installing both handlers'
"$bin/spind" --nic loopback --socket "$work/spind.sock" >"$work/spind.log" 2>&1 &
spind=$!
started+=("$spind")
eventually spind_is_up || { cat "$work/spind.log" "$work/list.txt" >&2; die 'spind does not start'; }
spinctl install "$work/icmp_echo.elf" --rule 'icmp echo'
spinctl install "$work/udp_pingpong.elf" --rule 'udp dport 9999'

say 'replaying a ping and UDP session'
spinctl replay "$session" "$work/replies.pcap"
check 'exactly the right reply to every request' \
    traffic check-capture "$session" "$work/replies.pcap" --server-mac "$server_mac"
check 'tshark finds no fault with any reply' no_tshark_faults "$work/replies.pcap"
replies=$(tshark -n -r "$work/replies.pcap" 2>/dev/null | wc -l)
save_stats
equal 'frames sent by handlers' "$(counter tx_packets)" "$replies"
equal 'handlers ended by a fault' "$(counter faults)" 0

say 'removing the handlers'
spinctl rm icmp_echo
spinctl rm udp_pingpong
spinctl replay "$session" "$work/silence.pcap"
check 'the same session again gets no reply' replies_are_none "$work/silence.pcap"
end "$spind"
[ -z "${OUT:-}" ] || cp "$work/replies.pcap" "$OUT"
verdict
