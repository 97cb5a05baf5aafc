"""Measure what questions to the Redis stores cost, and what their janitor costs the server.

Example: ``python scripts/benchmark_stores.py --section janitor --dead 100000``. Exit codes: 0 measured, whether or not
an aim was met; 2 usage; 3 there is no server here.
"""

from __future__ import annotations

import sys

from lastbus._kit.bench.stores import main as main

if __name__ == "__main__":
    sys.exit(main())
