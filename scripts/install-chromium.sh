#!/usr/bin/env bash
# Installs Debian's or Ubuntu's Chromium, in which web/ is tested. Does nothing where
# there is one: CHROMIUM says where, if it is not on the path.
set -euo pipefail

if [ -n "${CHROMIUM:-}" ] || command -v chromium >/dev/null; then
    exit 0
fi
as_root=""
if [ "$(id -u)" != 0 ]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        as_root="sudo"
    else
        echo "Tests in a browser need Chromium, and installing it needs root. Please run:" >&2
        echo "    sudo apt-get update && sudo apt-get install -y chromium" >&2
        exit 1
    fi
fi
if ! command -v apt-get >/dev/null; then
    echo "Tests in a browser need Chromium, and this is not a Debian or Ubuntu machine:" >&2
    echo "please install it, and say where it is: CHROMIUM=/path/to/chromium" >&2
    exit 1
fi
$as_root apt-get update -qq || true # an unrelated broken source must not stop us
$as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends chromium >/dev/null
