# What the demos, the playground and the script that takes captures share. Sourced by bash; expects `set -euo pipefail`.

here=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
root=$(dirname "$here")
bin=${SPIN_BIN:-$root/target/release}
sdk=$root/handlers/sdk
failures=0
started=()    # processes of ours, to be ended
namespaces=() # a pair of ours, to be removed

# Makes the folder $work and sees to it that nothing of ours stays behind, however the script ends. KEEP names a folder to
# copy $work to before.
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
    set +e # whatever fails, the rest is to be removed
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

# Takes note of a check that did not hold; the demo goes on, so that one run shows all of them.
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

# Names what is missing, with the packages Debian has it in.
need() { # TOOL=PACKAGE...
    local pair missing=()
    for pair in "$@"; do
        command -v "${pair%%=*}" >/dev/null 2>&1 || missing+=("${pair#*=}")
    done
    [ ${#missing[@]} -eq 0 ] || die "missing packages; on Debian: apt install ${missing[*]}"
}

# spin-cc knows which compilers will do and names the packages if there is none.
need_compiler() {
    "$sdk/bin/spin-cc" --check >/dev/null || exit 1
}

need_built() {
    local name
    for name in spind spinctl spin-traffic; do
        [ -x "$bin/$name" ] || die "$bin/$name is not built: run \`make build\`, or set SPIN_BIN"
    done
}

build_handlers() {
    local name
    for name in icmp_echo udp_pingpong; do
        "$sdk/bin/spin-cc" "$root/handlers/$name/$name.c" -o "$work/$name.elf"
    done
}

# Starts a program in a namespace and leaves its process in $started_pid. Not through a function such as `on_server … &`:
# that would be a subshell, and ending it would leave the program.
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
spind_is_up() { spinctl list >"$work/list.txt" 2>&1; }

# A counter of engine or NIC, or with --context of a context, from the statistics saved last.
counter() { traffic counter "$@" <"$work/stats.json"; }
save_stats() { spinctl stats --json >"$work/stats.json"; }

# Ends a process of ours: politely, then not. One that has been waited for is no job of ours any more, and its number may
# be another's.
end() { # PID
    local tries
    jobs -p | grep -qx "$1" || return 0
    kill -TERM "$1" 2>/dev/null || return 0
    # Reaped in the background by bash: then kill -0 finds it no more.
    for tries in $(seq 100); do
        kill -0 "$1" 2>/dev/null || break
        sleep 0.05
    done
    kill -KILL "$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
}

# Ends tcpdump. It reads packets in blocks, the last of which arrives up to a second late (libpcap's time-out) and is
# forgotten when it is told to stop before.
end_capture() { # PID
    sleep 2
    end "$1"
}

# tshark's own judgement on every IPv4 packet of a capture: prints the frames it finds fault with.
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
