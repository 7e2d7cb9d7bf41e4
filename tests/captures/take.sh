#!/usr/bin/env bash
# Takes session.pcap: what a client's kernel, and a few hand-made frames, send to a server in a ping and UDP session,
# as it arrives at the server's interface. Needs root; ends with what it made removed.
#
#   20 pings of 64 B and 5 of 1472 B, 20 datagrams each of 18, 256 and 1472 B, and the frames of `spin-traffic
#   odd-frames`: tagged, padded, with IP options, fragments, cut short.
set -euo pipefail
captures=$(CDPATH='' cd -- "$(dirname "$0")" && pwd -P)
. "$captures/../../deploy/demo-lib.sh"

[ "$(id -u)" = 0 ] || die 'needs root: it makes network namespaces'
need ip=iproute2 ethtool=ethtool ping=iputils-ping tcpdump=tcpdump
[ -x "$bin/spin-traffic" ] || die "$bin/spin-traffic is not built: run \`cargo build --release\`, or set SPIN_BIN"

client_ns=spin-tc-$$ server_ns=spin-ts-$$ server=10.77.0.2
begin "$client_ns" "$server_ns"

client() { ip netns exec "$client_ns" "$@"; }

"$here/nic-setup.sh" veth-up "$client_ns" "$server_ns" 77
start "$server_ns" "$work/echo.txt" "$work/echo.txt" "$bin/spin-traffic" udp-echo --listen 0.0.0.0:9999
eventually grep -q listening "$work/echo.txt" || die 'the echo server does not start'
# Inbound IPv4 only: neither the server's replies nor ARP.
start "$server_ns" "$work/tcpdump.out" "$work/tcpdump.txt" \
    tcpdump -i server -Q in -s 0 -n -w "$work/session.pcap" 'ip or (vlan and ip) or (vlan and ip)'
capture=$started_pid
eventually grep -q 'listening on' "$work/tcpdump.txt" || die "tcpdump: $(cat "$work/tcpdump.txt")"

client ping -q -c 20 -i 0.002 "$server" >/dev/null
client ping -q -c 5 -i 0.002 -s 1472 "$server" >/dev/null
client "$bin/spin-traffic" udp-client --to "$server:9999" --count 20
client "$bin/spin-traffic" odd-frames --iface client --from 10.77.0.1 --to "$server" --to-mac 02:00:00:00:00:02
# The last of the odd frames has been captured once something sent after it has been answered.
client "$bin/spin-traffic" udp-client --to "$server:9999" --count 1 --size 18
end_capture "$capture"
grep -E 'captured|dropped' "$work/tcpdump.txt"
cp "$work/session.pcap" "$captures/session.pcap"
