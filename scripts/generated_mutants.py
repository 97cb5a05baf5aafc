"""Run mutmut over the package, in a copy of the tree where it finds it.

mutmut takes the folder of the sources for a part of every module's name unless that folder is called `src`; in this
tree it is `engine`, and every mutant would be "not covered". So the copy calls it `src`; nothing else differs.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("tests", "scripts", "mutations", "docs", "README.md", "CHANGELOG.md", "LICENSE", "tox.ini")
IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc")


def stage(tree: Path) -> None:
    """Fill `tree` with the project, its source root renamed; what mutmut has learned there (`mutants/`) stays."""
    tree.mkdir(parents=True, exist_ok=True)
    shutil.copytree(ROOT / "engine", tree / "src", ignore=IGNORED, dirs_exist_ok=True)
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, ignore=IGNORED, dirs_exist_ok=True)
        else:
            shutil.copy2(ROOT / name, tree / name)
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (tree / "pyproject.toml").write_text(settings.replace('"engine', '"src'), encoding="utf-8")


def main(argv: list[str]) -> int:
    """Stage and run `mutmut run`; the exit code is mutmut's, which is 0 however many mutants survive."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: python scripts/generated_mutants.py --tree /tmp/mutants '*policy*'",
    )
    parser.add_argument("--tree", type=Path, default=ROOT / ".cache" / "mutmut", help="where the copy is made")
    parser.add_argument("names", nargs="*", help="mutants to run, as patterns; none: all")
    options = parser.parse_args(argv)
    stage(options.tree)
    command = [sys.executable, "-m", "mutmut"]
    ran = subprocess.run([*command, "run", *options.names], cwd=options.tree, check=False)
    subprocess.run([*command, "results"], cwd=options.tree, check=False)
    return ran.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
