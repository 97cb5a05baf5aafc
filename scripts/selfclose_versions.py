"""Play the shapes of a close from inside under other interpreters: the same as ``lastbus shapes``.

Example: ``python scripts/selfclose_versions.py --python python3.10 --python python3.13 --check``. Exit codes as there.
"""

from __future__ import annotations

import sys

from lastbus.cli import main

if __name__ == "__main__":
    main(["shapes", *sys.argv[1:]])
