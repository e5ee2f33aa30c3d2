#!/usr/bin/env bash
# Locks requirements/run.in, test.in and site.in, with all that they need, by version and
# hash, for every platform and Python 3.11 or newer (numpy's oldest):
#   scripts/lock.sh [--upgrade]
# Without --upgrade, versions that still fit stay. torch is not among them: its builds
# differ by platform. What is installed without dependencies is pinned in its own file.
set -euo pipefail
cd "$(dirname "$0")/.."

[ -x .venv/lock/bin/uv ] || {
    python3 -m venv .venv/lock
    .venv/lock/bin/python -m pip install -qq --disable-pip-version-check uv==0.13.8
}

lock() {
    .venv/lock/bin/uv pip compile --quiet --universal --python-version 3.11 \
        --generate-hashes --no-annotate --no-emit-index-url --no-emit-find-links \
        --custom-compile-command "make lock" "$@"
}

lock "$@" requirements/run.in -o requirements/run.txt
# All are installed into one environment: what they share has one version.
lock "$@" requirements/test.in -c requirements/run.txt -o requirements/test.txt
# Babel is for a blog, which the site has none of, and larger than all the rest.
lock "$@" requirements/site.in -c requirements/run.txt -c requirements/test.txt \
    --no-emit-package babel -o requirements/site.txt
