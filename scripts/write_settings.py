"""Write `docs/SETTINGS.md` from the table of settings.

Example: ``python scripts/write_settings.py --check``. Exit codes: 0 written, or the same; 1 ``--check`` found another
text; 2 usage.
"""

from __future__ import annotations

import sys

from lastbus._kit.settings_page import main as main

if __name__ == "__main__":
    sys.exit(main())
