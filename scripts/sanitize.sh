#!/usr/bin/env bash
# Builds the shim and the player with sanitizers, once per change of csrc, and runs the
# tests of its boundary and its threads, and of plans from files, with it:   scripts/sanitize.sh [asan] [tsan]
# The builds and the package around each are in build/asan and build/tsan.
set -euo pipefail
cd "$(dirname "$0")/.."

python=$PWD/.venv/bin/python
tests=(test/test_delegate.py test/test_boundary.py test/test_runtime.py
    test/cpp/test_player.py test/cpp/test_compile.py test/test_compile_ahead.py)
# Not about memory errors or races: it measures the process's resident memory, which a
# sanitizer's shadow is part of.
left_out=(--deselect test/test_delegate.py::test_weights_are_not_held_twice)

# The package as it is, but for the module that is built here.
package() {
    local directory=$1 entry
    mkdir -p "$directory/package/executorch_webgpu"
    for entry in executorch_webgpu/*; do
        case $entry in
        *.so | */__pycache__ | */include | */lib) ;;
        *) ln -sfn "$PWD/$entry" "$directory/package/$entry" ;;
        esac
    done
}

# Only what has changed since the last time is compiled.
build() {
    "$python" - "$@" <<'END'
import sys
from pathlib import Path

import setup

directory = Path(sys.argv[1]).resolve()
setup.build_shim(
    directory,
    directory / "package" / "executorch_webgpu",
    CMAKE_BUILD_TYPE="Debug",
    CMAKE_CXX_FLAGS=f"{sys.argv[2]} -fno-omit-frame-pointer",
)
END
}

# Both runtimes must be in the process before Python is. Reports go to files, because a
# test may capture what is written, and a process may be meant to end with an error.
run() {
    local directory=$1 library=$2 reports=$PWD/$1/report
    rm -f "$reports".*
    local status=0 loaded
    loaded="$(gcc -print-file-name="$library") $(gcc -print-file-name=libstdc++.so)"
    if [ "$library" = libtsan.so ]; then
        gcc -shared -fPIC -O1 -o "$directory/clocklock.so" scripts/tsan_clocklock.c
        loaded+=" $PWD/$directory/clocklock.so"
    fi
    # A device's last thread has ended when the process does, and nobody joins it.
    local tsan="exitcode=0:report_thread_leaks=0:log_path=$reports"
    # PYTHONSAFEPATH: the package in build/ comes before the one that is here.
    # setarch: the sanitizers want the usual layout of the address space.
    env LD_PRELOAD="$loaded" \
        ASAN_OPTIONS="detect_leaks=0:hard_rss_limit_mb=8000:log_path=$reports" \
        UBSAN_OPTIONS="print_stacktrace=1:log_path=$reports" \
        TSAN_OPTIONS="$tsan:suppressions=$PWD/scripts/tsan.supp" \
        PYTHONPATH="$PWD/$directory/package" PYTHONSAFEPATH=1 OMP_NUM_THREADS=1 \
        EXECUTORCH_WEBGPU_BUILD="$PWD/$directory" \
        setarch -R "$python" -m pytest -q -p no:cacheprovider \
        -o pythonpath="test test/cpp test/models examples $directory/package" \
        "${left_out[@]}" "${tests[@]}" || status=$?
    if compgen -G "$reports.*" >/dev/null; then
        cat "$reports".*
        status=1
    fi
    return $status
}

status=0
[ $# -gt 0 ] || set -- asan tsan
for wanted in "$@"; do
    case $wanted in
    asan) flags="-fsanitize=address,undefined -fno-sanitize=vptr" ;;
    tsan) flags="-fsanitize=thread" ;;
    *)
        echo "sanitize.sh: unknown sanitizer $wanted" >&2
        exit 1
        ;;
    esac
    package "build/$wanted"
    build "build/$wanted" "$flags"
    run "build/$wanted" "lib$wanted.so" || status=1
done
exit $status
