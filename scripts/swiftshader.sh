#!/usr/bin/env bash
# Runs the op tests on a second driver, SwiftShader, which Debian ships inside its
# chromium packages: the library is taken out of the package, no browser is
# installed. What is given is passed to pytest instead of test/ops:
#   scripts/swiftshader.sh [pytest arguments]
set -euo pipefail
cd "$(dirname "$0")/.."

driver=.venv/swiftshader
manifest=$driver/vk_swiftshader_icd.json
if [ ! -f "$manifest" ]; then
    if ! command -v apt-get >/dev/null; then
        echo "SwiftShader comes from Debian's chromium-common package, and this" >&2
        echo "machine has no apt-get. Put libvk_swiftshader.so and its" >&2
        echo "vk_swiftshader_icd.json into $driver by hand." >&2
        exit 1
    fi
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    # Without root the lists must be there already.
    [ "$(id -u)" != 0 ] || apt-get update -qq || true
    if ! (cd "$work" && apt-get download -qq chromium-common 2>"$work/errors"); then
        cat "$work/errors" >&2
        echo "Downloading chromium-common failed; try: sudo apt-get update" >&2
        exit 1
    fi
    dpkg-deb -x "$work"/chromium-common_*.deb "$work/files"
    mkdir -p "$driver"
    cp "$work"/files/usr/lib/chromium/libvk_swiftshader.so "$driver/"
    cp "$work"/files/usr/lib/chromium/vk_swiftshader_icd.json "$manifest"
fi

export VK_ICD_FILENAMES=$PWD/$manifest VK_DRIVER_FILES=$PWD/$manifest
export ET_WEBGPU_ADAPTER=swiftshader
.venv/bin/python -m executorch_webgpu adapter
if [ $# = 0 ]; then
    set -- -q -n 2 test/ops
fi
exec .venv/bin/python -m pytest "$@"
