#!/bin/bash
# Counts the cache lines that the packets of several units write, and those that two of them write, in a trace of all memory accesses
# (valgrind's lackey). Prints one line for each number of units. Usage: bench/unit-lines.sh FOLDER-OF-PROGRAMS
set -euo pipefail
programs=$1 polls=${POLLS:-12}
marks=$(mktemp)
trap 'rm -f "$marks"' EXIT
printf '%-6s %10s %14s %22s\n' units packets 'lines written' 'by two units or more'
for units in 1 2 4 8; do
    # The marks come first, on standard error with the trace.
    valgrind --tool=lackey --trace-mem=yes --smc-check=all --log-fd=9 "$programs/spin-bench-units" lines "$units" "$polls" \
        9>&1 >/dev/null 2>"$marks" |
        awk -v file="$marks" -v units="$units" '
            function known(   line, parts, n) {
                while ((getline line < file) > 0) { split(line, parts, " "); if (parts[1] == "mark") mark[substr(parts[2], 3)] = n++ }
                close(file)
            }
            BEGIN { unit = -1 }
            $1 == "S" || $1 == "M" {
                split($2, access, ",")
                address = access[1]; sub(/^0+/, "", address)
                if (!ready && ++stores % 65536 == 0) { known(); ready = length(mark) > 0 }
                if (address in mark) { unit = mark[address] == units ? -1 : mark[address]; next }
                if (unit < 0) next
                line = substr(address, 1, length(address) - 1)
                # A line has 64 bytes: four values of the last digit but one.
                digit = index("0123456789abcdef", substr(line, length(line))) - 1
                line = substr(line, 1, length(line) - 1) int(digit / 4)
                if (!(line in owner)) { owner[line] = unit; written++ }
                else if (owner[line] != unit && !(line in both)) { both[line] = 1; shared++; print "line", line, "units", owner[line], unit > "/dev/stderr" }
            }
            END { printf "%-6d %10s %14d %22d\n", units, "", written, shared }
        '
    sed -n 's/^packets/       packets run:/p' "$marks"
done
