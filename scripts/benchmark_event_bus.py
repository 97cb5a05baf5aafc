"""Measure what the bus costs beside bare tasks and other buses.

Example: ``python scripts/benchmark_event_bus.py --events 2000 --capacity 64``. Exit codes: 0 measured, whether or not
an aim was met; 1 a bus ran more handlers at once than its capacity; 2 usage; 3 the back end is not available here.
"""

from __future__ import annotations

import sys

from lastbus._kit.bench import main as main

if __name__ == "__main__":
    sys.exit(main())
