# Functions shared by the demos, the playground and the script that takes captures. Sourced by bash; expects
# `set -euo pipefail`.

here=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
root=$(dirname "$here")
bin=${SPIN_BIN:-$root/target/release}
sdk=$root/handlers/sdk
failures=0
started=()    # our processes, to be ended
namespaces=() # our pair of namespaces, to be removed

# Makes the folder $work, and removes everything the script made when it ends in any way. KEEP names a folder to which
# $work is copied before.
begin() { # [CLIENT_NS SERVER_NS]
    namespaces=("$@")
    work=$(mktemp -d "${TMPDIR:-/tmp}/spin.XXXXXX")
    trap leave EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    trap 'exit 129' HUP
}

leave() {
    trap '' INT TERM HUP
    set +e # a failure must not prevent the removal of the rest
    local pid
    for pid in "${started[@]}"; do end "$pid"; done
    [ ${#namespaces[@]} -eq 0 ] || "$here/nic-setup.sh" veth-down "${namespaces[@]}"
    [ -z "${KEEP:-}" ] || cp -r "$work" "$KEEP"
    rm -rf "$work"
}

say() { printf '\n== %s\n' "$*"; }

die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

# Records a failed check; the demo continues, so that one run shows all failures.
failed() {
    printf 'FAILED: %s\n' "$*" >&2
    failures=$((failures + 1))
}

check() { # WHAT COMMAND...
    local what=$1
    shift
    if "$@"; then echo "ok: $what"; else failed "$what"; fi
}

equal() { # WHAT GOT EXPECTED
    if [ "$2" = "$3" ]; then echo "ok: $1: $2"; else failed "$1: $2, expected $3"; fi
}

# Prints the missing tools and their Debian packages.
need() { # TOOL=PACKAGE...
    local pair missing=()
    for pair in "$@"; do
        command -v "${pair%%=*}" >/dev/null 2>&1 || missing+=("${pair#*=}")
    done
    [ ${#missing[@]} -eq 0 ] || die "missing packages; on Debian: apt install ${missing[*]}"
}

# spin-cc checks for a usable compiler and names the packages if there is none.
need_compiler() {
    "$sdk/bin/spin-cc" --check >/dev/null || exit 1
}

need_built() { # FILE...
    local name
    for name in "$@"; do
        [ -e "$bin/$name" ] || die "$bin/$name is not built: run \`make build\`, or set SPIN_BIN"
    done
}

build_handlers() {
    local name
    for name in icmp_echo udp_pingpong; do
        "$sdk/bin/spin-cc" "$root/handlers/$name/$name.c" -o "$work/$name.elf"
    done
}

# Starts a program in a namespace and stores its process id in $started_pid. A call such as `on_server … &` would start a
# subshell, and ending the subshell would leave the program running.
start() { # NAMESPACE OUTPUT ERRORS COMMAND...
    ip netns exec "$1" "${@:4}" >"$2" 2>"$3" &
    started_pid=$!
    started+=("$started_pid")
}

# Waits up to ten seconds for a condition.
eventually() { # COMMAND...
    local tries
    for tries in $(seq 200); do
        "$@" && return 0
        sleep 0.05
    done
    return 1
}

spinctl() { "$bin/spinctl" --socket "$work/spind.sock" "$@"; }
traffic() { "$bin/spin-traffic" "$@"; }
no_xdp_left() { ! ip -n "$server_ns" -d link show server | grep -q xdp; }
spind_is_up() { spinctl list >"$work/list.txt" 2>&1; }

# Starts spind on the interface `server` of a namespace, and waits until it answers. Its process is $spind.
serve_interface() { # NAMESPACE
    start "$1" "$work/spind.out" "$work/spind.log" "$bin/spind" --config "$here/demo.toml" --iface server \
        --socket "$work/spind.sock"
    spind=$started_pid
    eventually spind_is_up || { cat "$work/spind.log" "$work/list.txt" >&2; die 'spind does not start'; }
}

# Prints a counter of engine or NIC, or of a context with --context, from the latest saved statistics.
counter() { traffic counter "$@" <"$work/stats.json"; }
save_stats() { spinctl stats --json >"$work/stats.json"; }

# Ends one of our processes with SIGTERM, then SIGKILL. A process that was already waited for is skipped, since its number
# may have been reused.
end() { # PID
    local tries
    jobs -p | grep -qx "$1" || return 0
    kill -TERM "$1" 2>/dev/null || return 0
    # bash reaps the process in the background; kill -0 then fails.
    for tries in $(seq 100); do
        kill -0 "$1" 2>/dev/null || break
        sleep 0.05
    done
    kill -KILL "$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
}

# Ends tcpdump. It reads packets in blocks; the last one arrives up to a second late (libpcap's time-out) and is lost if
# tcpdump stops earlier.
end_capture() { # PID
    sleep 2
    end "$1"
}

# Prints the frames of a capture in which tshark finds errors, for every IPv4 packet.
tshark_faults() { # CAPTURE [FILTER]
    tshark -n -r "$1" -o ip.check_checksum:TRUE -o udp.check_checksum:TRUE -Y \
        "(${2:-ip}) && (ip.checksum.status == 0 || udp.checksum.status == 0 || icmp.checksum.status == 0 || _ws.malformed || udp.length.bad || ip.bogus_ip_length)" \
        2>"$work/tshark.log"
}

no_tshark_faults() { # CAPTURE [FILTER]
    local faults
    faults=$(tshark_faults "$@") || { cat "$work/tshark.log" >&2; return 1; }
    [ -z "$faults" ] || { printf '%s\n' "$faults" >&2; return 1; }
}

verdict() {
    if [ "$failures" -eq 0 ]; then
        say 'everything held'
    else
        say "$failures checks FAILED"
        return 1
    fi
}
