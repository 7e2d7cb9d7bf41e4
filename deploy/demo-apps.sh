#!/usr/bin/env bash
# The applications of host/apps in each language, on a spind between two network namespaces. An ordinary user runs them,
# `app-traffic` sends them packets, and all results are compared with what was sent. Programs in C run a second time under
# valgrind. Needs root and a built tree. Exits 0 only if all checks passed, and leaves nothing behind in any case except
# kill -9: then the namespaces spin-c-PID and spin-s-PID and their processes stay.
#
# environment: SPIN_BIN     folder of the binaries (default target/release)
#              PACKETS, KEYS, MESSAGES   amounts (200, 100, 30)
#              SPIN_PYTHON  an interpreter that has libspin: /usr/bin/python3 also runs the programs in Python, with its libspin
#              KEEP         a new folder for outputs and logs
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/demo-lib.sh"

packets=${PACKETS:-200} keys=${KEYS:-100} messages=${MESSAGES:-30}
client_ns=spin-c-$$ server_ns=spin-s-$$
server=10.77.0.2
sources=(10.77.0.11 10.77.0.12 10.77.0.13)
payload=100 rounds=5
apps=$root/host/apps
languages=(c valgrind rust)
[ -z "${SPIN_PYTHON:-}" ] || languages+=(python)

[ "$(id -u)" = 0 ] || die 'needs root (namespaces, XDP)'
need ip=iproute2 setpriv=util-linux ethtool=ethtool cc=gcc valgrind=valgrind
need_built spind spinctl spin-traffic app-traffic sources cache receiver libspin.a
need_compiler

begin "$client_ns" "$server_ns"

on_client() { ip netns exec "$client_ns" "$@"; }
on_server() { ip netns exec "$server_ns" "$@"; }

# Puts handlers and programs where a user without privileges may read them.
build_apps() {
    local app
    for app in sources cache receiver; do
        "$sdk/bin/spin-cc" --quiet "$apps/$app/handlers.c" -o "$work/$app.elf"
        cc -std=c11 -D_DEFAULT_SOURCE -O2 -g -Wall -Wextra -Werror -I"$root/host/libspin-c/include" "$apps/$app/main.c" \
            "$bin/libspin.a" -lpthread -ldl -lm -o "$work/$app-c"
        cp "$bin/$app" "$work/$app-rust"
        cp "$apps/$app/main.py" "$work/$app.py"
    done
    # Python looks for packages beside the program.
    [ -z "${SPIN_PYTHON:-}" ] || cp -r "$("$SPIN_PYTHON" -c 'import libspin; print(*libspin.__path__)')" "$work/"
    chmod -R a+rX "$work"
    chmod 644 "$work"/*.elf
}

# Sets $program to the command of an application in a language, and $name to their names.
choose_program() { # APPLICATION LANGUAGE
    case $2 in
        c) name="$1 in C" program=("$work/$1-c") ;;
        valgrind)
            name="$1 in C under valgrind"
            program=(valgrind --quiet --leak-check=full --errors-for-leak-kinds=all --error-exitcode=99 "$work/$1-c")
            ;;
        rust) name="$1 in Rust" program=("$work/$1-rust") ;;
        python) name="$1 in Python" program=(/usr/bin/python3 "$work/$1.py") ;;
    esac
}

start_spind() {
    say 'starting spind with its default policy for users'
    serve_interface "$server_ns"
}

# Starts an application as a user without privileges, and waits until its handlers are installed.
start_app() { # APPLICATION LANGUAGE COUNT
    out=$work/$1-$2.out
    choose_program "$1" "$2"
    say "$name"
    start "$server_ns" "$out" "$work/$1-$2.err" timeout 60 setpriv --reuid nobody --regid nogroup --clear-groups \
        "${program[@]}" "$work/$1.elf" "$3" "$work/spind.sock"
    app=$started_pid
    eventually grep -q '^waiting for' "$out" || { cat "$work/$1-$2.err" >&2; die "$name does not start"; }
}

# Checks that the application ends without an error, and nothing of it is left.
check_end() {
    check "$name: ends, and reports no error" ends_well
    check "$name: no context and no UDP socket is left" eventually nothing_left
}

nothing_left() { ! spinctl list --json | grep -q '"context"' && [ -z "$(on_server ss -Huan)" ]; }

ends_well() { wait "$app" && [ ! -s "${out%.out}.err" ] || { cat "${out%.out}.err" >&2; return 1; }; }

send() { on_client "$bin/app-traffic" "$@" >"$work/client.txt"; }

# Sends twice, and reads the application's table in between.
run_sources() { # LANGUAGE
    local total=$((packets * 6)) # 1 + 2 + 3 times
    start_app sources "$1" $((2 * total))
    check "$name: packets sent" send sources "$server:7001" "$packets" "$payload" "${sources[@]}"
    check "$name: table of $total packets" eventually table_is 1
    check "$name: packets sent again" send sources "$server:7001" "$packets" "$payload" "${sources[@]}"
    check_end
    check "$name: table of $((2 * total)) packets" table_is 2
}

# Whether the latest table has the counts of so many runs of app-traffic.
table_is() { diff <(tail -n 4 "$out") <(expected_table "$1") >"$work/table.diff"; } # RUNS

expected_table() { # RUNS
    local number count
    echo "$((packets * 6 * $1)) packets, ${#sources[@]} sources"
    for number in 3 2 1; do
        count=$((packets * number * $1))
        # 42 bytes of headers: Ethernet, IPv4, UDP
        printf '%-15s %9d packets %12d bytes\n' "${sources[number - 1]}" $count $((count * (42 + payload)))
    done
}

# The application answers each key once and each change, and two requests for keys that share an entry.
run_cache() { # LANGUAGE
    local answers=$((2 * keys + 2)) hits=$((rounds * keys + 1))
    hits_of_all=$((hits_of_all + hits))
    start_app cache "$1" "$answers"
    check "$name: requests answered" send cache "$server:7002" "$keys" "$rounds"
    equal "$name: client" "$(tail -n 1 "$work/client.txt")" \
        "$hits answers by the handler, $answers by the application, all values right"
    check_end
    equal "$name: application" "$(tail -n 1 "$out")" "$answers requests answered"
}

run_receiver() { # LANGUAGE
    start_app receiver "$1" "$messages"
    check "$name: messages sent" send messages "$server:7003" "$messages"
    check_end
    check "$name: $messages messages with right checksums, each once" same_messages
}

same_messages() {
    diff <(grep '^message ' "$out" | sort) <(grep '^message ' "$work/client.txt" | sort) >&2 &&
        [ "$(grep -c '^message ' "$out")" = "$messages" ]
}

# host/apps/README.md promises it.
are_short() { ! wc -l "$apps"/{sources,cache,receiver}/main.{c,py,rs} | grep -v total | awk '$1 >= 100' | grep .; }

check 'each program has less than 100 lines' are_short
"$here/nic-setup.sh" veth-up "$client_ns" "$server_ns" 77
for address in "${sources[@]}"; do ip -n "$client_ns" address add "$address/24" dev client; done
say 'compiling handlers and the programs in C'
build_apps
start_spind
hits_of_all=0
for language in "${languages[@]}"; do
    for app_name in sources cache receiver; do "run_$app_name" "$language"; done
done
say 'spind after all of them'
save_stats
equal 'frames sent by handlers' "$(counter tx_packets)" "$hits_of_all"
equal 'handlers ended by a fault' "$(counter faults)" 0
end "$spind"
check 'no XDP program is left' no_xdp_left
verdict
