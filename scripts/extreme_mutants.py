"""Empty every function of the given files in turn, and tell which of them no test misses.

First the tests that the catalogue of mutations names near a function are asked, then those of its room, or those under
`--tests`.

A survivor is a function that is tested by name only: sharpen a test, or accept it in mutations/accepted.toml with the
reason why nothing can be seen. Exit codes: 0 · 1 a survivor or a stale acceptance · 2 usage · 3 red baseline.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "engine"))

from lastbus.proof import accepted, extreme  # noqa: E402 - the checkout is proven by its own prover
from lastbus.proof.config import Project  # noqa: E402
from lastbus.proof.errors import ProofError, UsageError  # noqa: E402
from lastbus.proof.mutation import Mutation, load_all  # noqa: E402
from lastbus.proof.replay import Outcome, Result, replay  # noqa: E402

BUS = ("tests/close", "tests/dispatch", "tests/property")
SURFACE = ("tests/tidy/test_public_surface.py", "tests/contract/test_factory.py", "tests/contract/test_interfaces.py")
ROOMS = {
    "engine/lastbus/_close": BUS,
    "engine/lastbus/_dispatch": BUS,
    "engine/lastbus/_model": ("tests/model", "tests/property"),
    "engine/lastbus/_owners": ("tests/owners",),
    "engine/lastbus/_ports": ("tests/contract", "tests/model"),
    "engine/lastbus/_backends/__init__.py": ("tests/contract",),
    "engine/lastbus/_backends/memory": ("tests/contract",),
    "engine/lastbus/_backends/redis": ("tests/backends/redis", "tests/contract", "tests/services"),
    "engine/lastbus/_backends/sqlalchemy": ("tests/backends/sqlalchemy", "tests/contract"),
    "engine/lastbus/_services": ("tests/services",),
    **{
        f"engine/lastbus/{name}.py": SURFACE
        for name in ("__init__", "memory", "owners", "redis", "services", "sqlalchemy", "testing")
    },
    "engine/lastbus/__main__.py": ("tests/proof/test_cli.py",),
    "engine/lastbus/_bus.py": ("tests/contract",),
    "engine/lastbus/_clock.py": ("tests/contract",),
    "engine/lastbus/_errors.py": ("tests/contract", "tests/services/test_strategy.py"),
    "engine/lastbus/_factory.py": ("tests/contract/test_factory.py",),
    "engine/lastbus/_settings.py": ("tests/model/test_settings.py", "tests/kit/test_settings_page.py"),
    "engine/lastbus/_tasks.py": ("tests/contract",),
    "engine/lastbus/cli.py": ("tests/proof/test_cli.py",),
    "engine/lastbus/_commands": ("tests/proof", "tests/services/test_commands.py", "tests/selfclose"),
    "engine/lastbus/_kit": ("tests/kit", "tests/bench", "tests/selfclose"),
    "engine/lastbus/proof": ("tests/proof",),
}
"""What is emptied if nothing is named, and the tests to ask at last about each: every file of the package is in one."""
BACKENDS = {
    "engine/lastbus/_backends/redis/": re.compile(r"^tests/backends/redis/|\[.*(redis|valkey)"),
    "engine/lastbus/_backends/sqlalchemy/": re.compile(r"^tests/backends/sqlalchemy/|\[.*(postgres|sqlite)"),
}
"""The tests on each kind of server. Of everything else those of the memory bus say as much in a fraction of the time.
"""
SERVICES = "engine/lastbus/_services/"
MEMORY = re.compile(r"\[memory\b")


def main(argv: Sequence[str]) -> int:
    """Empty the functions, print what became of them, and gate on the survivors."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: python scripts/extreme_mutants.py engine/lastbus/_model --jobs 2",
    )
    parser.add_argument("places", nargs="*", default=ROOMS, help="files and folders; none: " + ", ".join(ROOMS))
    parser.add_argument("--tests", nargs="*", help="where to look at last; none: the tests of the room")
    parser.add_argument("--jobs", "-j", type=int, default=os.cpu_count() or 1, help="how many at once")
    options = parser.parse_args(argv)
    try:
        return gate(Project.load(ROOT), options.places, options.tests, options.jobs)
    except ProofError as error:
        print(f"extreme_mutants: {error}", file=sys.stderr)
        return error.exit_code


def of_room(file: str) -> tuple[str, ...]:
    """Where the tests are that are asked at last about a file; nowhere if it is in no room."""
    return next((tests for room, tests in ROOMS.items() if file == room or file.startswith(f"{room}/")), ())


def is_beside_the_point(file: str, test: str) -> bool:
    """Whether a test runs on a back end that the file has nothing to do with."""
    if file.startswith(SERVICES):  # They keep their own things on Redis, whatever the bus is.
        file = "engine/lastbus/_backends/redis/"
    elif file.startswith(tuple(BACKENDS)) and MEMORY.search(test):
        return True
    return any(pattern.search(test) and not file.startswith(place) for place, pattern in BACKENDS.items())


@cache
def collected(places: tuple[str, ...]) -> list[str]:
    """The node ids of the tests in some files and folders."""
    if not places:
        return []
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *places]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if said.returncode:
        raise UsageError(f"the tests in {', '.join(places)} cannot be collected:\n{said.stdout}{said.stderr}")
    return [line for line in said.stdout.splitlines() if "::" in line]


def told_at_once(result: Result) -> None:
    """What was not killed, as soon as it is known: a later round may still do it."""
    if not result.as_expected:
        print(f"  {result.verdict} so far: {result.mutation.id}", flush=True)


def gate(project: Project, places: Sequence[str], tests: Sequence[str] | None, jobs: int) -> int:
    """1 if anything is wrong, else 0. What stands in `tests` is asked about every file."""
    missing = [place for place in places if not (project.root / place).exists()]
    if missing:
        raise UsageError(f"there is no {missing[0]}")
    made = extreme.mutations(project, project.files(tuple(places), ".py"))

    def replayed(batch: Sequence[Mutation]) -> Outcome:
        print(f"emptying {len(batch)} functions, {sum(len(one.killers) for one in batch)} tests", flush=True)
        return replay(project, batch, jobs=jobs, progress=told_at_once)

    def further(file: str) -> Sequence[str]:
        return collected(of_room(file) if tests is None else tuple(tests))

    told = extreme.run(project, made, load_all(project), replayed, further, is_beside_the_point)
    for verdict, names in sorted(told.verdicts.items()):
        print(f"{len(names)} {verdict}" + ("" if verdict == "killed" else ": " + ", ".join(names)))
    complaints = list(accepted.review(project, extreme.BY, told.tried, told.survivors, told.undecided))
    for complaint in complaints:
        print(f"\n{complaint}", file=sys.stderr)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
