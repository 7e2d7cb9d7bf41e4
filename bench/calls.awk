# How often each function was called, of a profile by callgrind: a line "CALLS NAME" each. Names are written out where they
# come first, and numbered.
/^c?fn=/ {
    split($0, part, /[()]/)
    name = part[3]
    sub(/^ /, "", name)
    if (name != "") names[part[2]] = name
    if ($0 ~ /^cfn=/) callee = part[2]
}
/^calls=/ {
    split($0, part, /[= ]/)
    calls[callee] += part[2]
}
END { for (id in calls) print calls[id], names[id] }
