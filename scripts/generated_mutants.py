"""Run mutmut over the package, in a copy of the tree where it finds it, and gate on the mutants that survive.

mutmut takes the folder of the sources for a part of every module's name unless that folder is called `src`; in this
tree it is `engine`, and every mutant would be "not covered". So the copy calls it `src`; nothing else differs.

mutmut itself succeeds however many mutants survive. Here each survivor is noticed by a new test, or is accepted in
mutations/accepted.toml with the reason why nothing can be seen. What timed out is counted apart: it is no survivor,
and no kill either. Exit codes: 0 · 1 an unexplained survivor, a stale acceptance, or no mutants · 2 usage · 3 mutmut
failed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "engine"))

from lastbus.proof import accepted  # noqa: E402 - the checkout is proven by its own prover
from lastbus.proof.config import Project  # noqa: E402
from lastbus.proof.errors import UsageError  # noqa: E402

COPIED = ("tests", "scripts", "mutations", "docs", "examples", "README.md", "CHANGELOG.md", "LICENSE", "tox.ini")
IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc")
FAILED = 3
WORDS = {0: "survived", 1: "killed", 3: "killed", 5: "no tests", 33: "no tests", 34: "skipped", 36: "timeout"}
WORDS |= dict.fromkeys((-24, 24, 152, 255), "timeout")
UNNOTICED = ("survived", "no tests")
NOTICED = ("killed", "skipped")
MAKER = "mutmut"


@dataclass(frozen=True)
class Tried:
    """One mutant that mutmut tried: its name there, where it is here, and what became of it."""

    name: str
    file: str
    function: str
    word: str

    @property
    def place(self) -> tuple[str, str]:
        """The function that it changes."""
        return self.file, self.function


def stage(tree: Path, tests: Sequence[str]) -> None:
    """Fill `tree` with the project, its source root renamed; what mutmut has learned there (`mutants/`) stays."""
    tree.mkdir(parents=True, exist_ok=True)
    shutil.copytree(ROOT / "engine", tree / "src", ignore=IGNORED, dirs_exist_ok=True)
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, ignore=IGNORED, dirs_exist_ok=True)
        else:
            shutil.copy2(ROOT / name, tree / name)
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8").replace('"engine', '"src')
    if tests:
        line = f"pytest_add_cli_args_test_selection = {json.dumps(list(tests))}"
        settings, changed = re.subn(r"^pytest_add_cli_args_test_selection = .*$", line, settings, flags=re.MULTILINE)
        assert changed == 1, "pyproject.toml selects the tests of mutmut once"
    (tree / "pyproject.toml").write_text(settings, encoding="utf-8")


def tried_in(tree: Path, names: Sequence[str]) -> Iterator[Tried]:
    """The mutants that match `names` (all, if there are none) and that mutmut has tried."""
    mutants = tree / "mutants"
    for meta in sorted(mutants.glob("src/**/*.py.meta")):
        file = meta.relative_to(mutants / "src").as_posix().removesuffix(".meta")
        for name, code in json.loads(meta.read_text(encoding="utf-8"))["exit_code_by_key"].items():
            if code is not None and (not names or any(fnmatchcase(name, pattern) for pattern in names)):
                yield Tried(name, f"engine/{file}", function_of(name), WORDS.get(code, "suspicious"))


def function_of(name: str) -> str:
    """The function, with its class, that mutmut's name of a mutant means."""
    last = name.rpartition(".")[2].rpartition("__mutmut_")[0]
    return last.removeprefix("xǁ").replace("ǁ", ".") if last.startswith("xǁ") else last.removeprefix("x_")


def gate(project: Project, tried: Sequence[Tried], show: Callable[[str], str]) -> int:
    """Print what became of the mutants and what is wrong; 1 if anything is, else 0.

    Keeps: MUT-70.
    """
    print(", ".join(f"{count} {word}" for word, count in sorted(Counter(one.word for one in tried).items())))
    explained = {mutant.place for mutant in accepted.load(project)}
    asked = [one for one in tried if one.word in UNNOTICED or (one.word not in NOTICED and one.place in explained)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # Each look is a process of its own.
        changes = list(pool.map(lambda one: accepted.change_of(show(one.name)), asked))
    survivors: list[accepted.Mutant] = []
    undecided: list[accepted.Mutant] = []
    for one, change in zip(asked, changes, strict=True):
        mutant = accepted.Mutant(MAKER, one.file, one.function, change)
        (survivors if one.word in UNNOTICED else undecided).append(mutant)
    complaints = list(accepted.review(project, MAKER, {one.place for one in tried}, survivors, undecided))
    for complaint in complaints:
        print(f"\n{complaint}", file=sys.stderr)
    return 1 if complaints else 0


def main(argv: list[str]) -> int:
    """Stage, run `mutmut run`, and gate on what survived."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: python scripts/generated_mutants.py 'lastbus._model.*' --tests tests/model tests/property",
    )
    parser.add_argument("--tree", type=Path, default=ROOT / ".cache" / "mutmut", help="where the copy is made")
    parser.add_argument(
        "--tests", nargs="*", default=[], help="the tests to run; none: those that pyproject.toml names"
    )
    parser.add_argument("--jobs", "-j", type=int, default=os.cpu_count() or 1, help="how many at once")
    parser.add_argument("names", nargs="*", help="mutants to run, as patterns; none: all")
    options = parser.parse_args(argv)
    stage(options.tree, options.tests)
    command = [sys.executable, "-m", "mutmut"]
    run = [*command, "run", "--max-children", str(options.jobs), *options.names]
    if subprocess.run(run, cwd=options.tree, check=False).returncode:
        return FAILED

    def show(name: str) -> str:
        return subprocess.run(
            [*command, "show", name], cwd=options.tree, capture_output=True, text=True, check=True
        ).stdout

    try:
        return gate(Project.load(ROOT), list(tried_in(options.tree, options.names)), show)
    except UsageError as error:
        print(f"generated_mutants: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
