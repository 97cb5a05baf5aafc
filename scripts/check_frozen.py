"""Check the frozen bodies: the same as ``lastbus frozen check``, for those who look in scripts/ first.

Example: ``python scripts/check_frozen.py --rev HEAD``. Exit codes as there.
"""

from __future__ import annotations

import sys

from lastbus.cli import main

if __name__ == "__main__":
    main(["frozen", "check", *sys.argv[1:]])
