#!/usr/bin/env bash
# Builds the wheel of libspin for Python, and installs it in a virtual environment that has nothing else.
# Usage: deploy/python-wheel.sh dev|release
#
# The wheel and the environment `venv` are in target/python/PROFILE. The tools (host/libspin-python/requirements.txt) have an environment
# of their own, target/python/tools. Prints the wheel's path.
set -euo pipefail
profile=${1:-}
case $profile in
    dev | release) ;;
    *) echo "usage: deploy/python-wheel.sh dev|release" >&2; exit 2 ;;
esac
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
crate=host/libspin-python tools=$CARGO_TARGET_DIR/python/tools to=$CARGO_TARGET_DIR/python/$profile

if ! python3 -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "the wheel needs Python 3.11 or later with venv: apt-get install python3 python3-venv" >&2
    exit 1
fi
# Several tests may ask at once.
mkdir -p "$to"
exec 9>"$CARGO_TARGET_DIR/python/.lock"
flock 9

if ! cmp -s "$crate/requirements.txt" "$tools/requirements.txt"; then
    rm -rf "$tools"
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: -r "$crate/requirements.txt"
    cp "$crate/requirements.txt" "$tools/"
fi

# Without the time of the build, equal sources give equal wheels.
rm -rf "$to/built"
SOURCE_DATE_EPOCH=315532800 "$tools/bin/maturin" build --quiet --locked --profile "$profile" --manifest-path "$crate/Cargo.toml" --out "$to/built"
wheel=$(basename "$to/built"/*.whl)
if ! cmp -s "$to/built/$wheel" "$to/$wheel"; then
    rm -rf "$to"/*.whl "$to/venv"
    python3 -m venv --without-pip "$to/venv"
    "$tools/bin/pip" --python "$to/venv/bin/python" install --quiet --disable-pip-version-check --no-index --no-deps "$to/built/$wheel"
    mv "$to/built/$wheel" "$to/"
fi
echo "$to/$wheel"
