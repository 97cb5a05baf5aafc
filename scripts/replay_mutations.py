"""Replay mutations: the same as ``lastbus replay``, for those who look in scripts/ first.

Example: ``python scripts/replay_mutations.py --group CORE --jobs 2``. Exit codes as there.
"""

from __future__ import annotations

import sys

from lastbus.cli import main

if __name__ == "__main__":
    main(["replay", *sys.argv[1:]])
