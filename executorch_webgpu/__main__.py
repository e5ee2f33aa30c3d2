"""`python -m executorch_webgpu`: see cli.py."""

import sys

from .cli import main

sys.exit(main())
