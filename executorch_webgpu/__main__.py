"""`python -m executorch_webgpu`: see cli.py.

With `--cmake-dir`, the folder of the CMake package for C++ apps, which needs no GPU:
cmake -Dexecutorch_webgpu_DIR=$(python -m executorch_webgpu --cmake-dir)
"""

import sys
from pathlib import Path

if sys.argv[1:] == ["--cmake-dir"]:
    print(Path(__file__).resolve().parent / "cmake")
    sys.exit(0)

from .cli import main

sys.exit(main())
