#!/usr/bin/env bash
# Installs the build products: `make install`.
set -euo pipefail
[ $# -eq 3 ] || { echo "usage: deploy/install.sh BINARIES PREFIX DESTDIR" >&2; exit 2; }
bin=$1 prefix=$2 to=$3$2 etc=$3/etc
cd "$(dirname "${BASH_SOURCE[0]}")/.."

put() { install -D -m "$1" "$2" "$3"; }

for program in spind spinctl spin-bench spin-impair spin-pktgen; do put 755 "$bin/$program" "$to/bin/$program"; done
for library in fpspin.so.2 spin.so.1; do
    put 755 "$bin/lib$library" "$to/lib/lib$library"
    ln -sfn "lib$library" "$to/lib/lib${library%.*}"
done
for library in pspin pspin-fpspin; do put 755 "$bin/lib$library.so" "$to/lib/lib$library.so"; done
for library in spin fpspin pspin pspin-fpspin; do put 644 "$bin/lib$library.a" "$to/lib/lib$library.a"; done
mkdir -p "$to/include/spin" "$to/lib/spin/handlers"
cp -r host/libspin-c/include/. host/libfpspin/include/. host/libpspin/include/. "$to/include/spin/"
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
mkdir -p "$to/lib/pkgconfig"
sed "s|@PREFIX@|$prefix|; s|@VERSION@|$version|" host/libspin-c/libspin.pc.in >"$to/lib/pkgconfig/libspin.pc"
chmod 644 "$to/lib/pkgconfig/libspin.pc"
put 644 docs/man/spind.8 "$to/share/man/man8/spind.8"
put 644 docs/man/spinctl.1 "$to/share/man/man1/spinctl.1"
# A page describes several functions: the others' names are links to it.
for page in host/libspin-c/man/*.3; do
    file=$(basename "$page") man=$to/share/man/man3
    put 644 "$page" "$man/$file"
    sed -nE '/^\.Sh NAME/,/^\.Nd/s/^\.Nm ([a-z0-9_]+).*/\1.3/p' "$page" | while read -r name; do
        [ "$name" = "$file" ] || ln -sfn "$file" "$man/$name"
    done
done
# Headers of equal names, for another machine.
mkdir -p "$to/include/spin-fpspin"
cp -rL host/libpspin-fpspin/include/. "$to/include/spin-fpspin/"
# spin-cc finds its SDK relative to its own path.
for folder in sdk compat; do
    rm -rf "$to/lib/spin/$folder"
    cp -r "handlers/$folder" "$to/lib/spin/$folder"
done
rm -rf "$to/lib/spin/rust"
mkdir -p "$to/lib/spin/rust"
cp -r handlers/rust/spin-handler "$to/lib/spin/rust/"
put 755 deploy/rust-src.sh "$to/lib/spin/rust-src.sh"
for compiler in spin-cc spin-rustc; do ln -sf "../lib/spin/sdk/bin/$compiler" "$to/bin/$compiler"; done
for page in GUIDE REFERENCE PORTING; do put 644 "handlers/$page.md" "$to/lib/spin/$page.md"; done
for image in target/handlers/*.elf; do
    name=$(basename "$image" .elf)
    [ ! -e "handlers/$name/$name.c" ] || put 644 "$image" "$to/lib/spin/handlers/$name.elf"
done
put 755 deploy/nic-setup.sh "$to/lib/spin/nic-setup.sh"
mkdir -p "$to/lib/systemd/system"
sed "s|/usr/bin/spind|$prefix/bin/spind|" deploy/spind.service >"$to/lib/systemd/system/spind.service"
# An edited configuration is kept.
if [ ! -e "$etc/spin/spind.toml" ]; then
    mkdir -p "$etc/spin"
    sed "s|/usr/lib/spin|$prefix/lib/spin|" deploy/spind.toml >"$etc/spin/spind.toml"
fi
echo "installed to $to; $etc/spin/spind.toml names interface, images and rules: edit it, then systemctl enable --now spind"
