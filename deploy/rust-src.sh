#!/usr/bin/env bash
# Prints the folder of the standard library's source for the compiler in use. It is the toolchain's own (rustup component
# add rust-src), or Debian's `rust-src` of exactly that version, unpacked below the target folder and kept there. Nothing
# is installed. Fails with a reason if neither is available.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
suite=http://deb.debian.org/debian
release=trixie-backports

die() {
    echo "no source of the standard library: $*" >&2
    exit 1
}

# apt uses a separate configuration, so the system's sources and lists are unchanged.
apt_get() {
    APT_CONFIG=$apt/apt.conf apt-get -q "$@"
}

configure_apt() {
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $suite $release main" >"$apt/sources.list"
    cat >"$apt/apt.conf" <<CONF
Dir::Etc::sourcelist "$apt/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::State::lists "$apt/lists";
Dir::Cache "$apt/cache";
APT::Sandbox::User "root";
CONF
}

# Unpacks the source of compiler version $1 into $sources.
fetch() {
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
        die "no apt to fetch Debian's with (rustup component add rust-src)"
    apt=$(mktemp -d)
    trap 'rm -rf "$apt"' EXIT
    configure_apt
    apt_get update >/dev/null || die "cannot read the package list of $release"
    (cd "$apt" && apt_get download "rust-src=$1+*" >/dev/null) || die "$release has no rust-src of version $1"
    rm -rf "$sources.new"
    dpkg-deb -x "$apt"/rust-src_*.deb "$sources.new"
    rm -rf "$sources"
    mv "$sources.new" "$sources"
}

own=$(rustc --print sysroot)/lib/rustlib/src/rust/library
if [ -e "$own/std/Cargo.toml" ]; then
    echo "$own"
    exit 0
fi
version=$(rustc --version | cut -d' ' -f2)
target_dir=${CARGO_TARGET_DIR:-target}
sources=$(mkdir -p "$target_dir" && realpath "$target_dir")/rust-src-$version
library=$sources/usr/src/rustc-$version/library
[ -e "$library/std/Cargo.toml" ] || fetch "$version"
echo "$library"
