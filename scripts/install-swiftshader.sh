#!/usr/bin/env bash
# Puts a second Vulkan driver, SwiftShader, into .venv/swiftshader, for the tests.
# Debian ships it inside its chromium packages: the library is taken out of the
# package, no browser is installed, and nothing outside .venv changes.
set -euo pipefail
cd "$(dirname "$0")/.."

driver=.venv/swiftshader
[ ! -f "$driver/vk_swiftshader_icd.json" ] || exit 0
if ! command -v apt-get >/dev/null; then
    echo "SwiftShader comes from Debian's chromium-common package, and this" >&2
    echo "machine has no apt-get. Put libvk_swiftshader.so and its" >&2
    echo "vk_swiftshader_icd.json into $driver by hand." >&2
    exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
download() { (cd "$work" && apt-get download -qq chromium-common 2>"$work/errors"); }
if ! download; then
    # The lists are missing or old; without root they stay as they are.
    if [ "$(id -u)" = 0 ]; then
        apt-get update -qq || true
    elif command -v sudo >/dev/null; then
        sudo -n apt-get update -qq || true
    fi
    if ! download; then
        cat "$work/errors" >&2
        echo "Downloading chromium-common failed; try: sudo apt-get update" >&2
        exit 1
    fi
fi
dpkg-deb -x "$work"/chromium-common_*.deb "$work/files"
mkdir -p "$driver"
cp "$work"/files/usr/lib/chromium/libvk_swiftshader.so "$driver/"
cp "$work"/files/usr/lib/chromium/vk_swiftshader_icd.json "$driver/"
