#!/usr/bin/env bash
# Runs tests on SwiftShader alone; test/ops, which `make test` runs on SwiftShader
# beside the machine's own driver, unless others are given:
#   scripts/swiftshader.sh [pytest arguments]
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install-swiftshader.sh
manifest=$PWD/.venv/swiftshader/vk_swiftshader_icd.json
export VK_ICD_FILENAMES=$manifest VK_DRIVER_FILES=$manifest
export ET_WEBGPU_ADAPTER=swiftshader
.venv/bin/python -m executorch_webgpu adapter
if [ $# = 0 ]; then
    set -- -q -n 2 test/ops
fi
exec .venv/bin/python -m pytest "$@"
