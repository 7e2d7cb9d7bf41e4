#!/bin/sh
# Prepares interfaces for AF_XDP: veth pairs between network namespaces, and real NICs.
set -eu

usage() {
    cat <<'TEXT'
usage: nic-setup.sh veth-up CLIENT_NS SERVER_NS [NUMBER]
       nic-setup.sh veth-down CLIENT_NS SERVER_NS
       nic-setup.sh nic INTERFACE

veth-up    makes both namespaces and a veth pair between them: `client` 10.NUMBER.0.1/24 with MAC 02:00:00:00:00:01
           in one, `server` 10.NUMBER.0.2/24 with MAC 02:00:00:00:00:02 in the other (NUMBER 1 to 254, default 77).
           Leaves nothing behind when it fails.
veth-down  removes what veth-up made.
nic        turns off what an AF_XDP program cannot cope with, saying what it changes. Changes nothing else: neither
           queue counts nor addresses.
TEXT
}

die() {
    echo "nic-setup.sh: $*" >&2
    exit 1
}

need_root() {
    [ "$(id -u)" = 0 ] || die 'needs root'
}

need() {
    for tool in "$@"; do
        command -v "$tool" >/dev/null 2>&1 || die "$tool is missing; on Debian: apt install iproute2 ethtool"
    done
}

# Reasons to disable these offloads on a veth:
#   tx-checksumming  the sender leaves the checksum to hardware that a veth does not have. The kernel's receiver knows
#                    that; a program that reads frames finds invalid checksums
#   tx/rx-vlan-*     tags would be passed outside the frame, where neither the XDP program nor a handler sees them
#   tso/gso/gro      frames longer than the MTU do not fit a packet buffer; XDP in native mode refuses some of them
veth_offloads() { # NAMESPACE INTERFACE
    ip netns exec "$1" ethtool -K "$2" tx off txvlan off rxvlan off tso off gso off gro off >/dev/null
}

# One queue at each end: attaching an XDP program fails (ENOSPC) when the peer has more transmit queues than this end
# has receive queues, and one spind thread serves one queue.
veth_up() {
    need_root
    client=$1 server=$2 number=${3:-77}
    case $number in '' | *[!0-9]*) die "NUMBER must be 1 to 254, not $number" ;; esac
    [ "$number" -ge 1 ] && [ "$number" -le 254 ] || die "NUMBER must be 1 to 254, not $number"
    need ip ethtool
    for name in "$client" "$server"; do
        ip netns list | grep -qw "^$name" && die "namespace $name exists already"
    done
    trap 'veth_down "$client" "$server"' EXIT
    ip netns add "$client"
    ip netns add "$server"
    ip -n "$client" link add client address 02:00:00:00:00:01 numtxqueues 1 numrxqueues 1 type veth \
        peer name server netns "$server" address 02:00:00:00:00:02 numtxqueues 1 numrxqueues 1
    veth_end "$client" client "10.$number.0.1/24"
    veth_end "$server" server "10.$number.0.2/24"
    trap - EXIT
}

# IPv6 is disabled, since its router solicitations would be unexpected frames.
veth_end() { # NAMESPACE INTERFACE ADDRESS
    ip netns exec "$1" sysctl -qw net.ipv6.conf.all.disable_ipv6=1 2>/dev/null || true
    ip -n "$1" address add "$3" dev "$2"
    veth_offloads "$1" "$2"
    ip -n "$1" link set lo up
    ip -n "$1" link set "$2" up
}

veth_down() {
    for name in "$1" "$2"; do
        ip netns delete "$name" 2>/dev/null || true
    done
}

# A real NIC computes checksums itself, so these offloads stay on. Stripping tags and merging frames must be off.
nic() {
    need_root
    need ethtool
    [ -e "/sys/class/net/$1" ] || die "there is no interface $1; ip link shows those there are"
    for feature in rx-vlan-offload generic-receive-offload large-receive-offload; do
        state=$(ethtool -k "$1" | sed -n "s/^$feature: //p")
        case $state in
            on)
                echo "$1: turning $feature off (undo: ethtool -K $1 $feature on)"
                ethtool -K "$1" "$feature" off
                ;;
            'on [fixed]') echo "$1: $feature cannot be turned off: VLAN-tagged or merged frames may be mishandled" ;;
            *) echo "$1: $feature is ${state:-unknown}, left alone" ;;
        esac
    done
    queues=$(ethtool -l "$1" 2>/dev/null | sed -n 's/^Combined:[[:space:]]*//p' | tail -1)
    echo "$1: ${queues:-an unknown number of} queues, left alone; spind serves all of them"
}

case ${1:-} in
    veth-up) [ $# -ge 3 ] || { usage >&2; exit 2; }; shift; veth_up "$@" ;;
    veth-down) [ $# -eq 3 ] || { usage >&2; exit 2; }; veth_down "$2" "$3" ;;
    nic) [ $# -eq 2 ] || { usage >&2; exit 2; }; nic "$2" ;;
    -h | --help) usage ;;
    *) usage >&2; exit 2 ;;
esac
