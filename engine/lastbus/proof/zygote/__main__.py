"""The door of the zygote: makes its folder a package of a private name, whatever else is called `serve` or `swap`."""

from __future__ import annotations

import importlib.util
import os
import sys

PACKAGE = "_lastbus_zygote"


def load() -> None:
    """Make the modules beside this file importable below `PACKAGE`, and only there."""
    here = os.path.dirname(os.path.abspath(__file__))
    file = os.path.join(here, "__init__.py")
    spec = importlib.util.spec_from_file_location(PACKAGE, file, submodule_search_locations=[here])
    assert spec is not None
    sys.modules[PACKAGE] = importlib.util.module_from_spec(spec)


if __name__ == "__main__":
    del sys.path[0]  # This folder is no place to import from: `serve` or `swap` may be anybody's.
    load()
    module = "host" if sys.argv[1] == "host" else "serve"
    importlib.import_module(f"{PACKAGE}.{module}").main(*sys.argv[2 if module == "host" else 1 :])
