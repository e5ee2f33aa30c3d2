#!/usr/bin/env bash
# Installs a software Vulkan driver (Mesa llvmpipe), so that a machine without a
# GPU still has a WebGPU adapter. Newer Mesa is several times faster, so the
# distribution's backports are preferred where they exist; the ordinary package
# works too. Does nothing that a person would not type: apt-get, as root or sudo.
set -euo pipefail

packages="mesa-vulkan-drivers"
as_root=""
if [ "$(id -u)" != 0 ]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        as_root="sudo"
    else
        echo "No GPU adapter was found, and installing the software Vulkan driver" >&2
        echo "needs root. Please run:" >&2
        echo "    sudo apt-get update && sudo apt-get install -y $packages" >&2
        exit 1
    fi
fi
if ! command -v apt-get >/dev/null; then
    echo "No GPU adapter was found and this is not a Debian or Ubuntu machine:" >&2
    echo "please install a Vulkan driver (for example Mesa's lavapipe)." >&2
    exit 1
fi

. /etc/os-release
backports=""
if [ "${ID:-}" = debian ] && [ -n "${VERSION_CODENAME:-}" ]; then
    backports="${VERSION_CODENAME}-backports"
    list=/etc/apt/sources.list.d/executorch-webgpu-backports.list
    # The mirror is the one this machine already uses for its release.
    mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' \
        'Created-By: Packages' 2>/dev/null |
        awk -v want="$VERSION_CODENAME" '$2 == want && $3 == "main" { print $1; exit }')
    if [ -z "$mirror" ]; then
        backports=""
    elif ! apt-get indextargets --format '$(RELEASE)' 2>/dev/null | grep -qx "$backports"; then
        echo "deb $mirror $backports main" | $as_root tee "$list" >/dev/null
    fi
fi

export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -qq || true # an unrelated broken source must not stop us
install() { $as_root apt-get install -y -qq --no-install-recommends "$@" >/dev/null; }
if [ -n "$backports" ] &&
    install -t "$backports" $packages libdrm2 libdrm-amdgpu1 2>/dev/null; then
    echo "installed $packages from $backports"
elif install $packages; then
    echo "installed $packages"
else
    echo "Installing $packages failed. Please run it by hand to see why:" >&2
    echo "    apt-get update && apt-get install -y $packages" >&2
    exit 1
fi
