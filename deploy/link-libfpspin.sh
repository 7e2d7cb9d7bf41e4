#!/usr/bin/env bash
# Links libfpspin.so.2, with versioned symbols, from libfpspin.a: cargo cannot give a shared library symbol versions.
# Usage: deploy/link-libfpspin.sh FOLDER (of libfpspin.a)
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: deploy/link-libfpspin.sh FOLDER" >&2; exit 2; }
to=$1 source=$(dirname "${BASH_SOURCE[0]}")/../host/libfpspin
archive=$to/libfpspin.a library=$to/libfpspin.so.2
# Several tests may ask at once.
exec 9>"$to/.libfpspin.lock"
flock 9
for input in "$archive" "$source/fpspin.map" "$source/src/loaded_as.c" "${BASH_SOURCE[0]}"; do
    if [ "$input" -nt "$library" ]; then
        ${CC:-cc} -shared -O2 -fPIC -o "$library.new" "$source/src/loaded_as.c" -Wl,-soname,libfpspin.so.2 \
            -Wl,--version-script="$source/fpspin.map" -Wl,--gc-sections -Wl,-z,relro,-z,now \
            -Wl,--whole-archive "$archive" -Wl,--no-whole-archive -lgcc_s -lpthread -ldl -lm
        mv "$library.new" "$library"
        break
    fi
done
ln -sfn libfpspin.so.2 "$to/libfpspin.so"
