#!/usr/bin/env python3
"""The two commands of a checkout: everything they need is made here, and nothing outside it is touched.

    python3 scripts/gate.py prove    the ledger, the replay of every mutation, the frozen bodies
    python3 scripts/gate.py test     the whole suite on CPython 3.10, 3.11, 3.12 and 3.13

Needs a Python from 3.8 on to start with and the standard library only. Both commands make ``.venv`` beside
``pyproject.toml``, install ``.[dev]`` there when ``pyproject.toml`` has changed, and run the tool from it.
Interpreters are found, never downloaded.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from types import FrameType
from typing import Callable, Iterable, Iterator, Mapping, NamedTuple, Sequence  # noqa: UP035 - Python 3.8 reads this file

ROOT = Path(__file__).resolve().parent.parent
WANTED = ("3.10", "3.11", "3.12", "3.13")
OLDEST = (3, 10)
VERBS = ("prove", "test")
UNABLE = 3
NOTHING_TESTED = 5
USAGE = 2
ASK_SECONDS = 20
LEAVE_SECONDS = 30
STAMP = "lastbus-gate.stamp"
IDENTIFY = "import platform, sys; print(platform.python_implementation(), '{}.{}'.format(*sys.version_info))"

HELP = """usage: python3 scripts/gate.py {prove,test} [ARGUMENT ...]

  prove   run `lastbus prove` here: the ledger, the replay of every mutation, the frozen bodies
  test    run the suite on every supported CPython found here (3.10 to 3.13), through tox

Arguments after the verb go to `lastbus prove` or to tox as they are.

examples:
  python3 scripts/gate.py prove
  python3 scripts/gate.py test
  python3 scripts/gate.py test -e py312 -- tests/close -k overdue

Without arguments, `test` runs the interpreters side by side and shows the output of those that fail.

exit status: that of the command; 2 for a usage error; 3 when this machine lacks something (the text says
what to install); 5 when tox succeeded without testing anything. With CI=true a missing interpreter is such a lack.
"""


class Unable(Exception):
    """This machine lacks something. The text says what, and what to do about it."""


class Interpreter(NamedTuple):
    """A CPython that was asked for its version and answered."""

    version: str
    path: Path


class Tally(NamedTuple):
    """What one run of pytest came to."""

    passed: int
    failed: int
    skipped: int
    seconds: float

    @property
    def line(self) -> str:
        """As pytest would close: passed, failed, skipped, time."""
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return f"{self.passed} passed, {self.failed} failed{skipped} in {self.seconds:.2f}s"


def main(argv: Sequence[str]) -> int:
    """Run one of the two commands; return the exit status described in ``HELP``."""
    if argv and argv[0] in ("-h", "--help"):
        print(HELP, end="")
        return 0
    if not argv or argv[0] not in VERBS:
        wrong = f"unknown command {argv[0]!r}" if argv else "which command?"
        print(f"gate: {wrong}\n\n{HELP}", end="", file=sys.stderr)
        return USAGE
    try:
        return prove(argv[1:]) if argv[0] == "prove" else test(argv[1:])
    except Unable as lack:
        print(f"gate: {lack}", file=sys.stderr)
        return UNABLE


def prove(extra: Sequence[str]) -> int:
    """Run ``lastbus prove``, two mutations at once for each core: half of their time they wait."""
    venv = ready_venv(ROOT, find_interpreters())
    jobs = ["--jobs", str(2 * cores())]
    return run([str(venv / "bin" / "lastbus"), "prove", *jobs, *extra], surroundings(venv))


def test(extra: Sequence[str]) -> int:
    """Run the suite on every interpreter found, then say for each how pytest closed."""
    found = find_interpreters()
    report_missing(found)
    venv = ready_venv(ROOT, found)
    reports = ROOT / ".tox" / "reports"
    shutil.rmtree(reports, ignore_errors=True)
    names = [env_name(one.version) for one in found]
    arguments, workers = plan(extra, len(found), cores())
    # Named by environment, an `-e` among the arguments replaces them; another `-e` would add to them.
    environ = {**surroundings(venv, found), "TOXENV": ",".join(names), "LASTBUS_TEST_WORKERS": str(workers)}
    status = run([str(venv / "bin" / "tox"), *arguments], environ)
    tallies = read_tallies(reports)
    print_tallies(tallies)
    if status == 0 and not extra and not all(name in tallies for name in names):
        print("gate: tox succeeded, but not every interpreter tested something", file=sys.stderr)
        return NOTHING_TESTED
    return status


def plan(extra: Sequence[str], interpreters: int, cores: int) -> tuple[list[str], int]:
    """tox's arguments, and the pytest workers for each interpreter; no worker means pytest itself.

    Side by side, one interpreter needs no workers, and two cores are done with four of them in less time
    than with two workers for each in turn. With arguments, somebody is watching: one after the other then,
    because tox keeps the output of parallel runs back.
    """
    if extra:
        return ["run", *extra], cores if cores > 1 else 0
    abreast = min(interpreters, cores)
    workers = cores // abreast
    return ["run-parallel", "--parallel", str(abreast), "--parallel-no-spinner"], workers if workers > 1 else 0


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# --- interpreters ---------------------------------------------------------------------------------------------


def find_interpreters(environ: Mapping[str, str] = os.environ) -> list[Interpreter]:
    """The wanted CPythons of this machine, at most one for each version, oldest first."""
    found = (first_that_answers(version, candidates(version, environ)) for version in WANTED)
    return [one for one in found if one is not None]


def candidates(version: str, environ: Mapping[str, str]) -> Iterator[Path]:
    """Where that version may be: PATH, beside the running one, pyenv's versions, uv's pythons."""
    program = f"python{version}"
    for folder in filter(None, environ.get("PATH", "").split(os.pathsep)):
        yield Path(folder, program)
    for prefix in [Path(sys.base_prefix), *pyenv_folders(version, environ), *uv_folders(version, environ)]:
        yield prefix / "bin" / program


def pyenv_folders(version: str, environ: Mapping[str, str]) -> list[Path]:
    """pyenv's installations of that version, newest first; development builds do not count."""
    root = environ.get("PYENV_ROOT") or home(environ) + "/.pyenv"
    return newest_first(Path(root, "versions"), re.escape(version) + r"\.(\d+)")


def uv_folders(version: str, environ: Mapping[str, str]) -> list[Path]:
    """uv's installations of that version, newest first."""
    data = environ.get("XDG_DATA_HOME") or home(environ) + "/.local/share"
    root = environ.get("UV_PYTHON_INSTALL_DIR") or data + "/uv/python"
    return newest_first(Path(root), "cpython-" + re.escape(version) + r"\.(\d+)-.*")


def home(environ: Mapping[str, str]) -> str:
    return environ.get("HOME") or os.path.expanduser("~")


def newest_first(root: Path, pattern: str) -> list[Path]:
    """The folders in ``root`` whose whole name matches; the group is the number to sort by."""
    if not root.is_dir():
        return []
    matches = [(re.fullmatch(pattern, folder.name), folder) for folder in root.iterdir()]
    numbered = [(int(match.group(1)), folder) for match, folder in matches if match]
    return [folder for _, folder in sorted(numbered, reverse=True)]


def first_that_answers(version: str, paths: Iterable[Path]) -> Interpreter | None:
    """The first path that runs and is that version of CPython. A pyenv shim may exist and still not run."""
    for path in paths:
        if path.is_file() and answer(path, IDENTIFY) == f"CPython {version}":
            return Interpreter(version, path)
    return None


def answer(python: Path, code: str) -> str | None:
    """What that interpreter prints for a line of code; ``None`` when it cannot run it."""
    try:
        said = subprocess.run(
            [str(python), "-I", "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=ASK_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return said.stdout.decode(errors="replace").strip() if said.returncode == 0 else None


def report_missing(found: Sequence[Interpreter], environ: Mapping[str, str] = os.environ) -> None:
    """Name the interpreters that are not here; in CI, and when there is none at all, that is the end."""
    there = [one.version for one in found]
    missing = [version for version in WANTED if version not in there]
    if not missing:
        return
    text = (
        f"CPython {', '.join(missing)} not found on PATH, in pyenv or in uv; "
        f"install with `pyenv install {' '.join(missing)}` or `uv python install {' '.join(missing)}`"
    )
    if not found or in_ci(environ):
        raise Unable(text)
    print(f"gate: {text}\ngate: testing on {', '.join(there)} only", flush=True)


def in_ci(environ: Mapping[str, str]) -> bool:
    """Say whether ``CI`` is set to anything but a spelled-out no."""
    return environ.get("CI", "").strip().lower() not in ("", "0", "false", "no")


def env_name(version: str) -> str:
    """tox's name for it: 3.12 is py312."""
    return "py" + version.replace(".", "")


# --- the virtual environment ----------------------------------------------------------------------------------


def ready_venv(root: Path, found: Sequence[Interpreter]) -> Path:
    """The environment in ``root/.venv`` with everything installed that ``pyproject.toml`` asks for.

    Made again when it does not work, installed into again unless its stamp, written last of all, says
    that this very ``pyproject.toml`` was installed. Waits for another gate that is just doing the same.
    """
    venv, project = root / ".venv", root / "pyproject.toml"
    with project.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        content = hashlib.sha256(held.read() + str(venv).encode()).hexdigest()
        if not works(venv):
            make_venv(venv, found)
        if read_stamp(venv)[:1] != [content]:
            (venv / STAMP).write_text("")
            write_stamp(venv, [content, install(root, venv)])
    return venv


def works(venv: Path) -> bool:
    """Say whether the environment runs a Python that is new enough, and has a pip or an installed project."""
    python = venv / "bin" / "python"
    return is_new_enough(python) and (has_pip(python) or find_uv(venv) is not None)


def is_new_enough(python: Path) -> bool:
    """Say whether it runs and is at least ``OLDEST``."""
    return answer(python, f"import sys; print(sys.version_info >= {OLDEST!r})") == "True"


def has_pip(python: Path) -> bool:
    return answer(python, "import pip") is not None


def make_venv(venv: Path, found: Sequence[Interpreter]) -> None:
    """Make the environment, in place of whatever is left of an earlier attempt.

    ``venv`` is preferred to uv: it brings a pip, which knows this machine's index where uv may not.
    """
    uv = shutil.which("uv")
    python, able = choose_host([Path(sys.executable), *(one.path for one in reversed(found))], uv is not None)
    say(f"making {venv} with {python}")
    remove(venv)
    command = [str(python), "-m", "venv"] if able else [str(uv), "venv", "--quiet", "--python", str(python)]
    if run([*command, str(venv)], {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}) != 0:
        raise Unable(f"{python} could not make {venv}; its own message stands above")


def remove(venv: Path) -> None:
    try:
        if venv.exists():
            shutil.rmtree(venv)
    except OSError as error:
        raise Unable(f"{venv} does not work and cannot be removed ({error}); remove it by hand") from error


def choose_host(pythons: Sequence[Path], has_uv: bool) -> tuple[Path, bool]:
    """The interpreter to make the environment with, and whether its own ``venv`` module can do it.

    The first that is new enough and has the module; without any such, the first for uv.
    """
    new = [python for python in pythons if is_new_enough(python)]
    if not new:
        raise Unable(
            "this is Python {}.{}, and no CPython {}.{} or newer was found on PATH, in pyenv or in uv; "
            "install one, for example with `pyenv install 3.12`".format(*sys.version_info[:2], *OLDEST)
        )
    for python in new:
        if answer(python, "import ensurepip, venv") is not None:
            return python, True
    if has_uv:
        return new[0], False
    raise Unable(
        f"{new[0]} has no venv module: on Debian and Ubuntu `apt install python3-venv`, elsewhere put uv on PATH"
    )


def install(root: Path, venv: Path) -> str:
    """Install the project, editable, with all that its development needs; say whether "uv" or "pip" did it.

    uv is much faster, pip is what the machine's index was set up for: uv goes first, pip steps in.
    """
    python = str(venv / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    project = ["--editable", f"{root}[dev]"]
    say(f"installing {root.name}[dev] in {venv}")
    if find_uv(venv) is None:
        run([*pip, "uv"])
    uv = find_uv(venv)
    if uv and run([uv, "pip", "install", "--quiet", "--python", python, *project]) == 0:
        return "uv"
    if run([*pip, *project]) != 0:
        raise Unable("the installation failed; the installer's own message stands above")
    return "pip"


def find_uv(venv: Path) -> str | None:
    """The environment's own uv, or the one on PATH."""
    own = venv / "bin" / "uv"
    return str(own) if own.is_file() else shutil.which("uv")


def read_stamp(venv: Path) -> list[str]:
    """What the last complete installation left: the hash and the installer. Empty without one."""
    try:
        return (venv / STAMP).read_text().split()
    except FileNotFoundError:
        return []


def write_stamp(venv: Path, words: Sequence[str]) -> None:
    """Leave the stamp whole or not at all."""
    draft = venv / (STAMP + ".draft")
    draft.write_text(" ".join(words))
    draft.replace(venv / STAMP)


# --- running --------------------------------------------------------------------------------------------------


def surroundings(
    venv: Path, found: Sequence[Interpreter] = (), environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """What the inner command sees: the interpreters and our tools on PATH, and no leave to download others."""
    folders = [*(one.path.parent for one in found), venv / "bin"]
    path = os.pathsep.join([*map(str, folders), environ.get("PATH", os.defpath)])
    changed = {**environ, "PATH": path, "UV_PYTHON_DOWNLOADS": "never"}
    if read_stamp(venv)[1:] == ["pip"]:
        changed["TOX_DISABLED_EXTERNAL_PLUGINS"] = "tox-uv"
    return changed


def run(command: Sequence[str], environ: Mapping[str, str] | None = None) -> int:
    """Run it here and return its exit status as a shell would.

    A request to end (SIGTERM) reaches the command as an interrupt: tox passes that on to what it runs, but
    would die of a SIGTERM and leave it all behind.
    """
    told: list[int] = []
    with handling(signal.SIGTERM, lambda number, _: told.append(number)):
        process = start(command, environ)
        with handling(signal.SIGTERM, lambda *_: process.send_signal(signal.SIGINT)):
            if told:
                process.send_signal(signal.SIGINT)
            try:
                status = process.wait()
            except KeyboardInterrupt:  # The terminal told it too: let it clean up.
                status = leave(process)
    return status if status >= 0 else 128 - status


def start(command: Sequence[str], environ: Mapping[str, str] | None) -> subprocess.Popen[bytes]:
    """Start it open to interrupts. A background job ignores them, and what it starts would inherit that."""
    with handling(signal.SIGINT, signal.default_int_handler):
        return subprocess.Popen(command, env=None if environ is None else dict(environ), cwd=str(ROOT))


@contextlib.contextmanager
def handling(number: signal.Signals, handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Handle a signal so for a while."""
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def leave(process: subprocess.Popen[bytes]) -> int:
    """Wait for an interrupted command, but not for ever."""
    with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
        process.wait(LEAVE_SECONDS)
    process.kill()
    process.wait()
    return 128 + signal.SIGINT


def say(text: str) -> None:
    print(f"gate: {text}", flush=True)


# --- what pytest said -----------------------------------------------------------------------------------------


def read_tallies(reports: Path) -> dict[str, Tally]:
    """The results by tox environment, from the files that pytest wrote there. No test, no entry."""
    read = ((report.stem, read_tally(report)) for report in sorted(reports.glob("*.xml")))
    return {name: tally for name, tally in read if tally is not None}


def read_tally(report: Path) -> Tally | None:
    """Add up one JUnit file; ``None`` when it is torn or holds no test."""
    try:
        # pytest wrote it a moment ago, in our own checkout.
        suites = list(ET.parse(str(report)).getroot().iter("testsuite"))  # noqa: S314
    except ET.ParseError:
        return None
    total = {key: sum(int(suite.get(key, 0)) for suite in suites) for key in ("tests", "failures", "errors", "skipped")}
    if not total["tests"]:
        return None
    failed = total["failures"] + total["errors"]
    seconds = sum(float(suite.get("time", 0)) for suite in suites)
    return Tally(total["tests"] - failed - total["skipped"], failed, total["skipped"], seconds)


def add_up(tallies: Sequence[Tally]) -> Tally:
    """All of them as one."""
    return Tally(
        sum(one.passed for one in tallies),
        sum(one.failed for one in tallies),
        sum(one.skipped for one in tallies),
        sum(one.seconds for one in tallies),
    )


def print_tallies(tallies: Mapping[str, Tally]) -> None:
    """One line for each interpreter, and the sum as the very last line."""
    for name, tally in tallies.items():
        print(f"{name}: {tally.line}")
    if tallies:
        print(f"==== {add_up(list(tallies.values())).line} on {', '.join(tallies)} ====", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
