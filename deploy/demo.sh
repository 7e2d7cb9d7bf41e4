#!/usr/bin/env bash
# The demo: sPIN handlers answer the system's own ping and a plain UDP client through `spind --iface`, in two network
# namespaces joined by a veth. A TCP transfer runs at the same time and bypasses the handlers. Needs root and a built
# tree. Exits 0 only if all checks passed, and leaves nothing behind in any case except kill -9: then the namespaces
# spin-c-PID and spin-s-PID and their processes stay.
#
# environment: SPIN_BIN   folder of the binaries (default target/release)
#              PINGS, DATAGRAMS, TCP_BYTES   amounts (1000, 10000 of each size, 100000000)
#              KEEP       a new folder for captures, logs and results
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/demo-lib.sh"

pings=${PINGS:-1000} datagrams=${DATAGRAMS:-10000} tcp_bytes=${TCP_BYTES:-100000000}
client_ns=spin-c-$$ server_ns=spin-s-$$
server=10.77.0.2 client=10.77.0.1 server_mac=02:00:00:00:00:02
sizes=18,256,1472

[ "$(id -u)" = 0 ] || die 'needs root (namespaces, XDP); without it: make demo NIC=loopback'
need ip=iproute2 setpriv=util-linux ethtool=ethtool ping=iputils-ping tcpdump=tcpdump tshark=tshark
need_built spind spinctl spin-traffic spin-xdp-echo
need_compiler

begin "$client_ns" "$server_ns"

on_client() { ip netns exec "$client_ns" "$@"; }
on_server() { ip netns exec "$server_ns" "$@"; }
quietly() { "$@" >/dev/null 2>&1; }

# Sets whether the server's kernel ignores ping: 0 lets it answer, 1 does not.
kernel_ignores_ping() { on_server sysctl -qw net.ipv4.icmp_echo_ignore_all="$1"; }

run_ping() { # FILE ADDRESS COUNT
    LC_ALL=C on_client ping -c "$3" -i 0.002 -W 2 "$2" >"$work/ping.txt" 2>&1 || true
    traffic ping --json <"$work/ping.txt" >"$1"
}

run_udp() { # FILE ADDRESS:PORT COUNT [ARGUMENT...]
    on_client "$bin/spin-traffic" udp-client --to "$2" --count "$3" --json "${@:4}" >"$1"
}

# Baseline: the kernel answers under equal conditions.
kernel_round() {
    say 'the kernel answers (baseline)'
    kernel_ignores_ping 0
    start "$server_ns" "$work/echo.txt" "$work/echo.err" "$bin/spin-traffic" udp-echo --listen 0.0.0.0:9998
    local echo=$started_pid
    eventually quietly grep -q listening "$work/echo.txt" || die 'the kernel echo does not start'
    start_capture kernel
    round kernel 9998
    end_capture "$tcpdump"
    end "$echo"
    kernel_ignores_ping 1
    check 'with icmp_echo_ignore_all the kernel does not answer' silent_ping
}

# Comparison: an AF_XDP socket without an engine, which sleeps when idle as spind does.
bare_round() {
    say 'a bare AF_XDP socket answers (comparison)'
    start "$server_ns" "$work/bare.txt" "$work/bare.err" "$bin/spin-xdp-echo" server --block
    local bare=$started_pid
    eventually quietly grep -q 'echo on' "$work/bare.err" || die "the bare echo does not start: $(cat "$work/bare.err")"
    start_capture bare
    round bare 9999
    end_capture "$tcpdump"
    end "$bare"
}

silent_ping() { ! quietly on_client ping -c 2 -i 0.1 -W 1 "$server"; }

start_spind() {
    say 'starting spind; an ordinary user installs both handlers'
    serve_interface "$server_ns"
    as_nobody install "$work/icmp_echo.elf" --rule 'icmp echo'
    as_nobody install "$work/udp_pingpong.elf" --rule 'udp dport 9999'
    check 'the policy refuses that user the port of ssh' refuses_ssh
    equal 'UDP sockets in the serving namespace: one holds the port' "$(on_server ss -Huan | grep -c ':9999 ')" \
        "$(on_server ss -Huan | wc -l)"
}

# spinctl as a user without privileges, who may not reach the folder of the programs.
as_nobody() { setpriv --reuid nobody --regid nogroup --clear-groups "$work/spinctl" --socket "$work/spind.sock" "$@"; }

refuses_ssh() { ! as_nobody install "$work/icmp_echo.elf" --rule 'tcp dport 22' 2>"$work/refusal.txt"; }

# Captures all ICMP and UDP at the client, tagged or not, with complete frames.
start_capture() { # NAME
    start "$client_ns" "$work/tcpdump.out" "$work/tcpdump.txt" tcpdump -i client -s 0 -B 131072 -n \
        -w "$work/$1.pcap" 'icmp or udp or (vlan and (icmp or udp)) or (vlan and (icmp or udp))'
    tcpdump=$started_pid
    eventually quietly grep -q 'listening on' "$work/tcpdump.txt" || die "tcpdump: $(cat "$work/tcpdump.txt")"
}

# Runs pings and datagrams of each size, with a TCP transfer at the same time, until the transfer is complete.
round() { # NAME UDP_PORT
    start "$server_ns" "$work/tcp-received.json" "$work/tcp-received.err" \
        "$bin/spin-traffic" tcp-receive --listen 0.0.0.0:5001
    local receiver=$started_pid
    eventually tcp_listens || die "the TCP receiver does not start: $(cat "$work/tcp-received.err")"
    start "$client_ns" "$work/tcp-sent.json" "$work/tcp-sent.err" \
        "$bin/spin-traffic" tcp-send --to "$server:5001" --bytes "$tcp_bytes"
    local sender=$started_pid
    check "$1: ping" run_ping "$work/$1-ping.json" "$server" "$pings"
    check "$1: UDP" run_udp "$work/$1-udp.json" "$server:$2" "$datagrams" --size "$sizes"
    check "$1: TCP sent" wait "$sender"
    check "$1: TCP received" wait "$receiver"
    equal "$1: TCP at both ends" "$(cat "$work/tcp-received.json")" "$(cat "$work/tcp-sent.json")"
}

spind_round() {
    say "$pings pings, $datagrams datagrams of each of $sizes B, $tcp_bytes B of TCP beside them"
    round spind 9999
    check_counters
}

tcp_listens() { on_server ss -Hltn 'sport = :5001' | grep -q 5001; }

# Checks that the handlers answered: one run per answered packet, and all TCP packets bypassed them.
check_counters() {
    save_stats
    local size_count
    size_count=$(tr ',' '\n' <<<"$sizes" | wc -l)
    equal 'icmp_echo handler runs' "$(counter payload_runs --context icmp_echo)" "$pings"
    equal 'udp_pingpong handler runs' "$(counter payload_runs --context udp_pingpong)" "$((datagrams * size_count))"
    equal 'frames sent by handlers' "$(counter tx_packets)" "$((pings + datagrams * size_count))"
    equal 'handlers ended by a fault' "$(counter faults)" 0
    local passed
    passed=$(counter passed_kernel)
    # A TCP segment has at most 1460 B of data.
    check "frames passed to the kernel: $passed" test "$passed" -ge $((tcp_bytes / 1460))
}

odd_traffic() {
    say 'VLAN tags, padding, IP options; fragments and truncated frames'
    check 'odd frames sent' on_client "$bin/spin-traffic" odd-frames --iface client --from "$client" --to "$server" \
        --to-mac "$server_mac"
    # One queue keeps the order: once these are answered, all earlier packets have been processed.
    check 'UDP afterwards' run_udp "$work/after.json" "$server:9999" 20 --size 18
}

check_capture() {
    say 'the client side of the wire'
    end_capture "$tcpdump"
    equal 'frames tcpdump dropped' "$(sed -n 's/ packets dropped by kernel//p' "$work/tcpdump.txt")" 0
    check 'exactly the right reply to every request' traffic check-capture "$work/spind.pcap" --server-mac "$server_mac"
    check 'tshark finds no fault with any reply' no_tshark_faults "$work/spind.pcap" "eth.src == $server_mac && ip"
}

check_removal() {
    say 'removing the handlers'
    as_nobody rm icmp_echo
    as_nobody rm udp_pingpong
    check 'ping is not answered' silent_ping
    check 'UDP is not answered' run_udp "$work/silent.json" "$server:9999" 3 --size 18 --timeout 300 --expect none
    end "$spind"
    check 'no XDP program is left' no_xdp_left
}

"$here/nic-setup.sh" veth-up "$client_ns" "$server_ns" 77
build_handlers
chmod 755 "$work"
chmod 644 "$work"/*.elf
cp "$bin/spinctl" "$work/spinctl"
# Resolve ARP first, so that it does not delay a measured packet.
quietly on_client ping -c 1 -W 2 "$server" || die 'the namespaces do not reach each other'
kernel_round
bare_round
start_spind
start_capture spind
spind_round
odd_traffic
check_capture
check_removal
say 'round trips: all rounds with the same capture and the same TCP transfer beside them'
outcomes() { echo "$work/$1-ping.json" "$work/$1-udp.json"; }
# shellcheck disable=SC2046 # two files each
traffic table --spind $(outcomes spind) --bare $(outcomes bare) --kernel $(outcomes kernel)
cat <<'TEXT'
Why they differ: the kernel answers a ping in the interrupt of its arrival; all others wake a sleeping thread first.
`spind --idle spin` polls instead, at the price of a busy core: docs/tuning.md. `make bench` compares polling programs.
TEXT
verdict
