#!/usr/bin/env bash
# Completes the host libraries in a folder of cargo's products. It links libfpspin.so.2 from libfpspin.a, since cargo cannot give a shared
# library symbol versions, and gives libpspin-fpspin the name that cargo cannot give it.
# Usage: deploy/link-libraries.sh FOLDER
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: deploy/link-libraries.sh FOLDER" >&2; exit 2; }
to=$1 source=$(dirname "${BASH_SOURCE[0]}")/../host/libfpspin
archive=$to/libfpspin.a library=$to/libfpspin.so.2
# Several tests may ask at once.
exec 9>"$to/.libraries.lock"
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
for kind in so a; do ln -sfn "libpspin_fpspin.$kind" "$to/libpspin-fpspin.$kind"; done
