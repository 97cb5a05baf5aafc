"""Run mutmut over the rooms of the package, each in a copy of the tree, and gate on what survives.

mutmut itself succeeds however many mutants survive. Here every room says what its run must reach. In a strict room each
survivor is noticed by a new test, or is accepted in mutations/accepted.toml with the reason why nothing can be seen. In
the others survivors are named, and so many of the rest must be killed. Whatever was neither noticed nor left alone by
the tests, above all what ran out of time, is asked again, alone and with patience: a busy machine makes time-outs. What
still hangs is no survivor and no kill. Exit codes: 0 · 1 an unexplained survivor, a stale acceptance, too few kills, or
no mutants · 2 usage · 3 mutmut failed.

mutmut takes the folder of the sources for a part of every module's name unless that folder is called `src`; in this
tree it is `engine`, and every mutant would be "not covered". So the copy calls it `src`; nothing else differs.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "engine"), str(ROOT)]

from lastbus.proof import accepted  # noqa: E402 - the checkout is proven by its own prover
from lastbus.proof.config import Project  # noqa: E402
from lastbus.proof.errors import UsageError  # noqa: E402

COPIED = ("tests", "scripts", "mutations", "docs", "examples", "README.md", "CHANGELOG.md", "LICENSE", "tox.ini")
IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc")
FAILED = 3
MAKER = "mutmut"
WORDS = {0: "survived", 1: "killed", 5: "no tests", 33: "no tests", 34: "skipped"}
WORDS |= dict.fromkeys((-24, 24, 36, 152), "timeout")
UNNOTICED = ("survived", "no tests")
NOTICED = ("killed", "skipped")
UNTOUCHED = "untouched"
PERCENT = 95.0
PATIENCE_SECONDS = 20.0
PATIENCE_FACTOR = 10.0
"""Of what is asked again, a test may take ten times what the slowest takes without the mutant, and this much more."""
GLANCE_SECONDS = 0.5
HANGS_MAX = 3
"""So many tests may hang on one mutant; after that the others are not asked."""


@dataclass(frozen=True)
class Room:
    """Files that are tried together, the tests that are asked about them, and what the run must reach."""

    places: tuple[str, ...]
    tests: tuple[str, ...]
    backends: tuple[str, ...] = ()
    """The back ends besides memory whose tests are asked: each costs a server, or more time for every mutant."""
    strict: bool = False
    """Whether each survivor needs a reason; in every room at least PERCENT of the others are killed."""

    @property
    def chosen(self) -> str:
        """The tests among `tests`, as pytest's -k says it."""
        left_out = [name for name in BACKENDS if name not in self.backends]
        return f"not ({' or '.join(left_out)})" if left_out else ""

    def holds(self, file: str) -> bool:
        """Whether a file, named from the package's folder, is in this room."""
        return any(fnmatchcase(file, place) for place in self.places)


BACKENDS = ("fakeredis", "valkey", "sqlite", "postgres")
SERVERS = {"valkey": "tests._backends.shared:valkey", "postgres": "tests._backends.shared:postgres"}
"""What is started once for a run, so that not every mutant starts its own."""
CONTRACT = ("tests/model", "tests/property", "tests/contract", "tests/close", "tests/dispatch", "tests/owners")
SERVICES = tuple(
    f"tests/services/test_{name}.py"
    for name in ("executions", "filter", "lifetimes", "queue", "reconciler", "registry", "strategy", "worker")
)
"""Without those that start programs or servers of their own: every mutant that they reach would wait for them."""
REPORT = ("_account", "_elements", "_folder", "_github", "_junit", "_page", "_reused", "")
LEDGER = ("__init__", "citations", "collection", "counts", "frozen", "keepers", "ledger", "meaning", "revisions")
LEDGER_TESTS = ("citations", "collection", "counts", "frozen", "frozen_command", "ledger", "meaning")
CATALOGUE = (
    *("accepted", "anchors", "authoring", "basis", "changes", "config", "division", "errors", "extreme", "history"),
    *("merge", "mutation", "record", "shard", "surroundings", "witness", "witnesses"),
)
CATALOGUE_TESTS = (
    *("accepted", "anchors", "authoring", "basis", "changes", "config", "division", "extreme", "history", "merge"),
    "mutation",
    *("surroundings", "witnesses"),
)
ROOMS = {
    "model": Room(("_model/*",), ("tests/model", "tests/property"), strict=True),
    "close": Room(("_close/*",), CONTRACT, strict=True),
    "dispatch": Room(("_dispatch/*", "_owners/*"), CONTRACT, strict=True),
    "verdict": Room(("proof/verdict.py",), ("tests/proof/test_verdict.py",), strict=True),
    "ports": Room(("_ports/*",), ("tests/contract", "tests/model"), ("sqlite",), strict=True),
    "memory": Room(("_backends/__init__.py", "_backends/memory/*"), ("tests/contract", "tests/property"), strict=True),
    "services": Room(("_services/*",), SERVICES, ("valkey",)),
    "sql": Room(("_backends/sqlalchemy/*",), ("tests/backends/sqlalchemy", "tests/contract"), ("sqlite",)),
    "redis": Room(
        ("_backends/redis/*",),
        ("tests/backends/redis", "tests/contract", "tests/services/test_executions.py", "tests/services/test_queue.py"),
        ("fakeredis", "valkey"),
    ),
    "top": Room(
        (
            *("__init__.py", "_bus.py", "_clock.py", "_errors.py", "_factory.py", "_settings.py", "_tasks.py"),
            *("memory.py", "owners.py", "redis.py", "services.py", "sqlalchemy.py", "testing.py"),
        ),
        (
            *("tests/contract", "tests/dispatch", "tests/model/test_settings.py", "tests/kit/test_settings_page.py"),
            *("tests/services/test_strategy.py", "tests/tidy/test_public_surface.py"),
        ),
    ),
    "commands": Room(
        ("__main__.py", "cli.py", "_commands/*"),
        (
            *("tests/proof/test_cli.py", "tests/proof/test_console.py", "tests/proof/test_frozen_command.py"),
            *("tests/proof/test_report_command.py", "tests/services/test_commands.py"),
        ),
        ("valkey",),
    ),
    "report": Room(("proof/report/*",), tuple(f"tests/proof/test_report{name}.py" for name in REPORT)),
    "watch": Room(
        ("proof/watchdog.py", "proof/pytest_plugin.py"), ("tests/proof/test_watchdog.py", "tests/proof/test_watch.py")
    ),
    "ledger": Room(
        tuple(f"proof/{name}.py" for name in LEDGER), tuple(f"tests/proof/test_{name}.py" for name in LEDGER_TESTS)
    ),
    "catalogue": Room(
        tuple(f"proof/{name}.py" for name in CATALOGUE),
        tuple(f"tests/proof/test_{name}.py" for name in CATALOGUE_TESTS),
    ),
}
"""Every room by its name. Whatever a room holds no other room holds."""
PROCESSES = (
    "it works in processes that it starts, where mutmut does not see which tests reach what; see `tox -e extreme`"
)
UNTRIED = {
    "_kit/*": "tests stand on it: a mutant there breaks the tests, and says nothing about the bus",
    **{
        f"proof/{name}.py": PROCESSES
        for name in ("baseline", "copies", "notes", "process", "replay", "runner", "services")
    },
    "proof/bench/*": PROCESSES,
    "proof/zygote/*": PROCESSES,
}
"""What no room holds, and why mutmut has nothing to say about it."""
DESELECTED = (
    "tests/close/test_order.py::test_the_contract_has_two_timed_waits_and_the_callers_own_deadline_and_no_other_clock",
    "tests/contract/test_factory.py::test_a_memory_bus_loads_no_driver",
    "tests/contract/test_factory.py::test_a_missing_driver_is_named_with_the_extra_that_brings_it",
    "tests/contract/test_factory.py::test_the_default_bus_is_not_made_before_somebody_asks",
    "tests/contract/test_interfaces.py::test_a_memory_bus_works_where_no_driver_is_installed",
    "tests/selfclose/test_runtime.py::test_the_guard_is_loaded_from_its_file_alone_and_answers",
    "tests/selfclose/test_runtime.py::test_the_guard_imports_nothing_but_the_standard_library",
)
"""They read the source, or start an interpreter that knows nothing of mutmut: both see other code than is tested."""


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


def stage(tree: Path, room: Room) -> None:
    """Fill `tree` with the project, its source root renamed, and have mutmut try `room`."""
    tree.mkdir(parents=True, exist_ok=True)
    shutil.copytree(ROOT / "engine", tree / "src", ignore=IGNORED, dirs_exist_ok=True)
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, ignore=IGNORED, dirs_exist_ok=True)
        else:
            shutil.copy2(ROOT / name, tree / name)
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8").replace('"engine', '"src')
    head = "[tool.mutmut]\n"
    assert settings.count(head) == 1, "pyproject.toml has one table for mutmut"
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in of_mutmut(room).items())
    (tree / "pyproject.toml").write_text(settings.replace(head, head + lines), encoding="utf-8")
    # What it has learned about which tests reach what is as old as the last run.
    (tree / "mutants" / "mutmut-stats.json").unlink(missing_ok=True)


def of_mutmut(room: Room) -> dict[str, list[str]]:
    """The settings of mutmut that belong to a room; the others are in pyproject.toml."""
    # A test that pytest ends for its time would look like one that failed.
    arguments = ["--timeout=0", *(f"--deselect={test}" for test in DESELECTED)]
    if not room.strict:
        arguments += ["-m", "not slow"]  # Every mutant that such a test reaches would wait for it.
    return {
        "only_mutate": [f"src/lastbus/{place}" for place in room.places],
        "pytest_add_cli_args": [*arguments, *(("-k", room.chosen) if room.chosen else ())],
        "pytest_add_cli_args_test_selection": list(room.tests),
    }


def tried_in(tree: Path, names: Sequence[str] = (), room: Room | None = None) -> Iterator[Tried]:
    """The mutants that match `names` (all, if there are none), are in `room`, and that mutmut has tried."""
    return (one for one in made_in(tree, names, room) if one.word != UNTOUCHED)


def made_in(tree: Path, names: Sequence[str] = (), room: Room | None = None) -> Iterator[Tried]:
    """The mutants of `room` that mutmut has made; what it has not tried, or does not match `names`, is UNTOUCHED."""
    mutants = tree / "mutants"
    for meta in sorted(mutants.glob("src/**/*.py.meta")):
        file = meta.relative_to(mutants / "src").as_posix().removesuffix(".meta")
        if room is not None and not room.holds(file.removeprefix("lastbus/")):
            continue
        for name, code in json.loads(meta.read_text(encoding="utf-8"))["exit_code_by_key"].items():
            is_meant = not names or any(fnmatchcase(name, pattern) for pattern in names)
            word = WORDS.get(code, "suspicious") if is_meant and code is not None else UNTOUCHED
            yield Tried(name, f"engine/{file}", function_of(name), word)


def function_of(name: str) -> str:
    """The function, with its class, that mutmut's name of a mutant means."""
    last = name.rpartition(".")[2].rpartition("__mutmut_")[0]
    return last.removeprefix("xǁ").replace("ǁ", ".") if last.startswith("xǁ") else last.removeprefix("x_")


def decided(tried: Sequence[Tried], again: Callable[[str], str]) -> Iterator[Tried]:
    """The same mutants, each with a word that means something: what has none yet is asked `again`, one by one.

    Keeps: MUT-70.
    """
    for one in tried:
        yield one if one.word in (*UNNOTICED, *NOTICED, UNTOUCHED) else replace(one, word=again(one.name))


def ask_alone(command: Sequence[str], tests: Sequence[str], tree: Path, name: str, seconds: float) -> str:
    """What `tests` say about one mutant in a process of their own, started by `command`, each within `seconds`.

    A hang says nothing, and the tests after it are asked as well: "killed" if one of them fails, "hang" if none does.

    Keeps: MUT-70.
    """
    left = list(tests)
    for _ in range(HANGS_MAX):
        code, line = _ended([*command, *left], tree, {**os.environ, "MUTANT_UNDER_TEST": name}, seconds)
        if code is not None:
            return "hang" if code == 0 and len(left) < len(tests) else WORDS.get(code, "broken")
        number = next((number for number, test in enumerate(left) if line.startswith(f"{test} ")), len(left))
        left = left[number + 1 :]
        if not left:  # It was the last one, or it hangs before the first one.
            break
    return "hang"


def _ended(command: Sequence[str], cwd: Path, environment: dict[str, str], seconds: float) -> tuple[int | None, str]:
    """Its exit code, or None if it said nothing for `seconds` and was killed with all that it had started; and the last
    line that names a test.

    Keeps: MUT-70.
    """
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            command, cwd=cwd, env=environment, stdout=said, stderr=subprocess.DEVNULL, start_new_session=True
        )
        heard, silent_since = 0, time.monotonic()
        try:
            while (code := process.poll()) is None and time.monotonic() - silent_since < seconds:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(GLANCE_SECONDS)
                if (size := os.fstat(said.fileno()).st_size) != heard:
                    heard, silent_since = size, time.monotonic()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        said.seek(0)
        return code, next((line for line in reversed(list(said)) if "::" in line), "")


def patiently(tree: Path, room: Room) -> Callable[[str], str]:
    """`ask_alone` with the tests that reach a mutant, the quickest first, as mutmut has found them out in `tree`."""
    learned = json.loads((tree / "mutants" / "mutmut-stats.json").read_text(encoding="utf-8"))
    seconds: dict[str, float] = learned["duration_by_test"]
    arguments = ["-x", "-v", "--tb=no", "-p", "no:cacheprovider", *of_mutmut(room)["pytest_add_cli_args"]]

    def ask(name: str) -> str:
        reach = learned["tests_by_mangled_function_name"].get(name.rpartition("__mutmut_")[0], [])
        tests = sorted(reach, key=lambda test: seconds[test])
        limit = PATIENCE_SECONDS + PATIENCE_FACTOR * max((seconds[test] for test in tests), default=0.0)
        command = [sys.executable, "-m", "pytest", *arguments]
        word = ask_alone(command, tests, tree / "mutants", name, limit) if tests else "no tests"
        print(f"  asked again, alone: {name}: {word}", flush=True)
        return word

    return ask


def gate(project: Project, room: Room, made: Sequence[Tried], show: Callable[[str], str]) -> int:
    """Print what became of the mutants of a room and what is wrong; 1 if anything is, else 0.

    An acceptance whose mutant was made and not tried stands.

    Keeps: MUT-70.
    """
    known = accepted.load(project)
    tried = [one for one in made if one.word != UNTOUCHED]
    explained = {mutant.place for mutant in known}
    asked = [one for one in made if one.word in UNNOTICED or (one.word not in NOTICED and one.place in explained)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # Each look is a process of its own.
        changes = list(pool.map(lambda one: accepted.change_of(show(one.name)), asked))
    survivors: list[accepted.Mutant] = []
    undecided: list[accepted.Mutant] = []
    for one, change in zip(asked, changes, strict=True):
        mutant = accepted.Mutant(MAKER, one.file, one.function, change)
        (survivors if one.word in UNNOTICED else undecided).append(mutant)
    words = Counter(one.word for one in tried)
    reached = percent_killed(words, sum(mutant in known for mutant in survivors))
    print(", ".join(f"{count} {word}" for word, count in sorted(words.items())) + f": {reached:.1f} % killed")
    unexplained = [mutant for mutant in survivors if mutant not in known]
    judged = survivors if room.strict else [mutant for mutant in survivors if mutant in known]
    complaints = list(accepted.review(project, MAKER, {one.place for one in tried}, judged, undecided))
    if not room.strict:
        for mutant in unexplained:
            print(f"\n{mutant.file}: {mutant.function}: nobody notices this:\n{mutant.change}", end="")
    if tried and reached < PERCENT:
        complaints.append(
            f"{reached:.1f} % of the mutants are killed: it must be {PERCENT:.0f} % of those not accepted"
        )
    for complaint in complaints:
        print(f"\n{complaint}", file=sys.stderr)
    return 1 if complaints else 0


def percent_killed(words: Counter[str], explained: int) -> float:
    """How many of the mutants were killed, but for those that are explained or were left out by a pragma.

    Keeps: MUT-70.
    """
    judged = words.total() - words["skipped"] - explained
    return 100.0 * words["killed"] / judged if judged else 100.0


def attempt(room: Room, tree: Path, jobs: int, names: Sequence[str]) -> int:
    """Stage a room, run `mutmut run`, and gate on what survived."""
    stage(tree, room)
    command = [sys.executable, "-m", "mutmut"]
    # Named mutants are run whatever mutmut remembers: a verdict rests on tests that may have changed.
    run = [*command, "run", "--max-children", str(jobs), *(names or ["*"])]
    with contextlib.ExitStack() as stack:
        for backend in room.backends:
            if backend in SERVERS:
                module, _, service = SERVERS[backend].partition(":")
                lent = stack.enter_context(getattr(importlib.import_module(module), service)())
                stack.enter_context(_environment(lent))
        if subprocess.run(run, cwd=tree, check=False).returncode:
            return FAILED
        made = list(decided(list(made_in(tree, names, room)), patiently(tree, room)))

    def show(name: str) -> str:
        return subprocess.run([*command, "show", name], cwd=tree, capture_output=True, text=True, check=True).stdout

    return gate(Project.load(ROOT), room, made, show)


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Put `variables` into the environment, and take them out again."""
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]


def main(argv: list[str]) -> int:
    """Try the rooms one after another; the exit code is the highest of theirs."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: python scripts/generated_mutants.py model --only '*.names.*' --jobs 2",
    )
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help="what to try; none: " + ", ".join(ROOMS))
    parser.add_argument("--only", nargs="+", default=[], metavar="PATTERN", help="only mutants with such names")
    parser.add_argument("--tests", nargs="+", default=[], help="the tests to run instead of those of the room")
    parser.add_argument("--tree", type=Path, default=ROOT / ".cache" / "mutmut", help="where the copies are made")
    parser.add_argument("--jobs", "-j", type=int, default=os.cpu_count() or 1, help="how many at once")
    options = parser.parse_args(argv)
    strange = [name for name in options.rooms if name not in ROOMS]
    if strange:
        parser.error(f"there is no room {strange[0]}: choose from {', '.join(ROOMS)}")
    codes = []
    for name in options.rooms or ROOMS:
        room = ROOMS[name]
        print(f"{name}:", flush=True)
        chosen = replace(room, tests=tuple(options.tests)) if options.tests else room
        try:
            codes.append(attempt(chosen, options.tree / name, options.jobs, options.only))
        except UsageError as error:
            print(f"generated_mutants: {error}", file=sys.stderr)
            codes.append(error.exit_code)
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
