# Reads the assembly of an image's sources and prints for each handler the stack it needs and the instructions it has, with all that
# it calls: instructions as if each were executed once, so loops count for one time round. Calls by pointer are not followed.

# What a task leaves of its stack of 4 KiB: task_t and handler_args_t lie at the top (abi/src/map.rs).
BEGIN { AVAILABLE = 4096 - 96 }

{ sub(/#.*/, "") }

/^[ \t]*\.type[ \t]/ {
    split($2, named, ",")
    if ($0 ~ /@function/) is_function[named[1]] = 1
    next
}

# A table of functions, such as init_handlers copies from.
/^[ \t]*\.(word|4byte|long)[ \t]+[A-Za-z_]/ { listed[$2] = 1 }

/^[A-Za-z_][A-Za-z0-9_$.]*:/ {
    label = substr($1, 1, length($1) - 1)
    now = (label in is_function) ? label : ""
    split("", seen)
    split("", value)
    next
}

/^\.L[^:]*:/ {
    seen[substr($1, 1, length($1) - 1)] = 1
    next
}

now == "" || !/^[ \t]+[a-z]/ { next }

{
    instructions[now]++
    operation = $1
    rest = $0
    sub(/^[ \t]+[a-z0-9.]+[ \t]*/, "", rest)
    gsub(/[ \t]/, "", rest)
    count = split(rest, operand, ",")
}

# What init_handlers names are handlers, if they turn out to be functions.
now == "init_handlers" {
    for (i = 1; i <= count; i++) {
        name = operand[i]
        gsub(/%(hi|lo|pcrel_hi)\(|\)|\(.*/, "", name)
        if (name ~ /^[A-Za-z_]/) told[name] = 1
    }
}

# What else writes a register leaves there what is not known.
operation !~ /^(s[bhw]|b[a-z]*|j|jr|ret|call|tail|addi|slli|li|lui)$/ { delete value[operand[1]] }

operation == "li" { value[operand[1]] = operand[2] + 0 }
operation == "lui" && operand[2] ~ /^-?[0-9]+$/ {
    upper = operand[2] % 1048576
    value[operand[1]] = 4096 * (upper >= 524288 ? upper - 1048576 : upper)
}
operation ~ /^(addi|slli)$/ {
    if (!(operand[2] in value) || operand[3] !~ /^-?[0-9]+$/) delete value[operand[1]]
    else value[operand[1]] = operation == "addi" ? value[operand[2]] + operand[3] : value[operand[2]] * 2 ^ operand[3]
}
operation ~ /^c?\.?addi(16sp)?$/ && operand[1] == "sp" && operand[count] ~ /^-/ { frame[now] -= operand[count] }
(operation == "add" || operation == "sub") && operand[1] == "sp" {
    by = (operand[3] in value) ? (operation == "add" ? -value[operand[3]] : value[operand[3]]) : ""
    if (by == "") unknown[now] = 1
    else if (by > 0) frame[now] += by
}

operation ~ /^sh[123]add$/ && operand[1] == "sp" {
    by = -2 ^ substr(operation, 3, 1)
    if (!(operand[2] in value)) unknown[now] = 1
    else if (value[operand[2]] * by > 0) frame[now] += value[operand[2]] * by
}

operation ~ /^(call|tail|jal|j)$/ {
    target = operand[count]
    sub(/@plt$/, "", target)
    if (target ~ /^[A-Za-z_]/) calls[now] = calls[now] " " target
}
operation == "jalr" { pointers[now] = 1 }
operation ~ /^(b[a-z]+|j)$/ && (operand[count] in seen) { loops[now] = 1 }

# Adds up a function and what it calls, once per place that calls it.
function walk(name, depth,    list, n, i, deepest) {
    if (open[name]) {
        recursive = 1
        return 0
    }
    # A function of a library: what is called is not known, nor is how it comes back.
    if (!(name in instructions)) {
        if (depth > 0) elsewhere = elsewhere " " name
        return 0
    }
    if (++walked > 100000) return 0
    open[name] = 1
    total += instructions[name]
    looping = looping || loops[name]
    by_pointer = by_pointer || pointers[name]
    uncertain = uncertain || unknown[name]
    n = split(calls[name], list, " ")
    deepest = 0
    for (i = 1; i <= n; i++) {
        below = walk(list[i], depth + 1)
        if (below > deepest) deepest = below
    }
    open[name] = 0
    return deepest + frame[name]
}

function report(name,    stack, more) {
    total = looping = by_pointer = uncertain = recursive = walked = 0
    elsewhere = ""
    stack = walk(name, 0)
    more = ""
    if (by_pointer) more = more "; calls by pointer"
    if (recursive) more = more "; recursion"
    if (uncertain) more = more "; stack of a size computed at run time"
    if (elsewhere != "") more = more "; and" elsewhere
    printf "  %s: stack %s%d of %d bytes, %d instructions%s%s\n", name, more == "" ? "" : "at least ", stack, AVAILABLE, total,
        looping ? " and loops" : "", more
    if (stack > AVAILABLE) {
        printf "spin-cc: warning: %s needs %d bytes of stack, of which there are %d: it will be ended\n", name, stack,
            AVAILABLE > "/dev/stderr"
    }
}

END {
    split("header_handler payload_handler completion_handler", usual, " ")
    for (i = 1; i <= 3; i++) told[usual[i]] = 1
    if ("init_handlers" in instructions) for (name in listed) told[name] = 1
    for (name in told) if ((name in instructions) && name != "init_handlers") sorted[++handlers] = name
    for (i = 1; i <= handlers; i++) {
        least = i
        for (j = i + 1; j <= handlers; j++) if (sorted[j] < sorted[least]) least = j
        name = sorted[least]
        sorted[least] = sorted[i]
        report(name)
    }
}
