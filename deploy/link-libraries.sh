#!/usr/bin/env bash
# Completes the host libraries in a folder of cargo's products. It links libfpspin.so.2 and libspin.so.1 from the static libraries, since
# cargo cannot give a shared library symbol versions, and gives libpspin-fpspin the name that cargo cannot give it.
# Usage: deploy/link-libraries.sh FOLDER
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: deploy/link-libraries.sh FOLDER" >&2; exit 2; }
to=$1 host=$(dirname "${BASH_SOURCE[0]}")/../host
# Several tests may ask at once.
exec 9>"$to/.libraries.lock"
flock 9

# Links a shared library from the static one, if that or another input is newer.
link() { # NAME VERSION SYMBOLS SOURCE...
    local archive=$to/lib$1.a soname=lib$1.so.$2 symbols=$3 input
    local library=$to/$soname
    shift 3
    for input in "$archive" "$symbols" "$@" "${BASH_SOURCE[0]}"; do
        if [ "$input" -nt "$library" ]; then
            ${CC:-cc} -shared -O2 -fPIC -o "$library.new" "$@" -Wl,-soname,"$soname" \
                -Wl,--version-script="$symbols" -Wl,--gc-sections -Wl,-z,relro,-z,now \
                -Wl,--whole-archive "$archive" -Wl,--no-whole-archive -lgcc_s -lpthread -ldl -lm
            mv "$library.new" "$library"
            break
        fi
    done
    ln -sfn "$soname" "${library%.*}"
}

link fpspin 2 "$host/libfpspin/fpspin.map" "$host/libfpspin/src/loaded_as.c"
link spin 1 "$host/libspin-c/spin.map"
for kind in so a; do ln -sfn "libpspin_fpspin.$kind" "$to/libpspin-fpspin.$kind"; done
