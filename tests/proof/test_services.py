"""Services: what a fixture needs runs once for a whole replay, only if it is asked for, and never longer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lastbus.proof.config import Project
from lastbus.proof.errors import UsageError
from lastbus.proof.process import ZYGOTE
from lastbus.proof.services import Services
from tests.proof.ends import ends, gone
from tests.proof.sample import FULL, PYPROJECT, TESTS, Sample

KEEPER = """
import contextlib, os, signal

@contextlib.contextmanager
def till():
    with open({note!r}, "a") as note:
        note.write(f"open {{os.getpid()}} ")
    yield {{"TILL": "lent"}}
    with open({note!r}, "a") as note:
        note.write("shut ")

@contextlib.contextmanager
def patient():
    with till() as lent:
        signal.setitimer(signal.ITIMER_REAL, 0.5)  # Who still waits then dies of it.
        yield lent
        signal.setitimer(signal.ITIMER_REAL, 0)

@contextlib.contextmanager
def broken():
    raise OSError("no coins")
    yield {{}}
"""
FIXTURE = """
import os

@pytest.fixture(scope="session")
def till():
    return os.environ.get("TILL", "own")

@pytest.fixture
def counter(request):
    return request.getfixturevalue("till")

"""
SERVED = TESTS.replace("import shop\n", f"import shop\n{FIXTURE}", 1).replace(
    "def test_add_gives_the_sum():", "def test_add_gives_the_sum(counter):\n    assert counter == 'lent'"
)


@pytest.fixture
def note(sample: Sample, tmp_path: Path) -> Path:
    """Where the service of the sample writes down when it begins and ends."""
    note = tmp_path / "note"
    sample.write("tests/keeper.py", KEEPER.format(note=str(note)))
    sample.write("tests/test_shop.py", SERVED)
    declare(sample, "till")
    return note


def declare(sample: Sample, name: str) -> None:
    paths = PYPROJECT.replace('pythonpath = ["src"]', 'pythonpath = ["src", "tests"]')
    sample.write("pyproject.toml", f'{paths}\n[tool.lastbus.proof.services]\ntill = "keeper:{name}"\n')


@pytest.mark.guarantee("MUT-28")
@pytest.mark.parametrize("isolated", [False, True], ids=["warm", "isolated"])
def test_all_killers_share_one_service_which_ends_with_the_replay(sample, note, isolated):
    for name in ("minus", "times"):
        sample.mutate(name, new=f"return one {'-' if name == 'minus' else '*'} two")
    sample.mutate("same", new="return two + one")

    assert sample.verdicts(isolated=isolated, jobs=2) == {"minus": "killed", "same": "survived", "times": "killed"}
    opened, pid, shut = note.read_text().split()
    assert (opened, shut) == ("open", "shut")
    assert gone(int(pid))


@pytest.mark.guarantee("MUT-28")
def test_a_service_that_no_killer_needs_is_not_started(sample, note):
    sample.mutate("fullness", guarantees=["SUM-02"], old="count >= LIMIT", new="False", killers=[FULL])

    assert sample.verdicts() == {"fullness": "killed"}
    assert not note.exists()


@pytest.mark.guarantee("MUT-28")
def test_to_ask_which_services_there_are_starts_none(sample, note, tmp_path):
    services = Services(sample.project, tmp_path, sys.executable)
    state = services.state
    services.close()

    assert state == {"till": None}
    assert not note.exists()


@pytest.mark.guarantee("MUT-28")
def test_without_its_service_a_fixture_helps_itself(sample, note):
    declare(sample, "broken")
    sample.write("tests/test_shop.py", SERVED.replace("== 'lent'", "== 'own'"))
    sample.mutate("wrong")

    assert sample.verdicts() == {"wrong": "killed"}


@pytest.mark.guarantee("MUT-28")
def test_who_asks_again_gets_the_same_service(sample, note, tmp_path):
    services = Services(sample.project, tmp_path, sys.executable)
    lent = [services.lend("till") for _ in range(2)]
    services.close()

    assert lent == [{"TILL": "lent"}] * 2
    assert note.read_text().count("open") == 1


@pytest.mark.guarantee("MUT-28")
def test_a_service_is_left_by_its_door(sample, note, tmp_path):
    services = Services(sample.project, tmp_path, sys.executable)
    services.lend("till")
    services.close()

    opened, pid, shut = note.read_text().split()
    assert (opened, shut) == ("open", "shut")
    assert gone(int(pid))


@pytest.mark.guarantee("MUT-28")
def test_a_service_without_a_parent_ends(sample, note):
    keeper = [sys.executable, str(ZYGOTE), "host", "keeper:patient", str(sample.root / "tests")]
    with subprocess.Popen(keeper, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as host:
        assert host.stdin is not None
        assert host.stdout is not None
        assert b"lent" in host.stdout.readline()
        host.stdin.close()

    assert host.returncode == 0
    assert note.read_text().split()[2] == "shut"


def test_why_a_service_could_not_be_started_is_kept(sample, note, tmp_path):
    declare(sample, "broken")
    services = Services(sample.project, tmp_path, sys.executable)
    lent = services.lend("till")
    services.close()

    assert lent == {}
    assert services.failures == {"till": "OSError: no coins"}


@pytest.mark.guarantee("MUT-15", "MUT-28")
@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL], ids=["terminated", "interrupted", "killed"]
)
def test_a_service_ends_however_the_replay_does(sample, note, tmp_path, number):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    code = f"import os\n    with open({str(pipe)!r}, 'w') as pipe: pipe.write(str(os.getpid()))\n    while True: pass"
    sample.mutate("hang", new=code, limit_seconds=30)
    command = [sys.executable, "-c", "from lastbus.cli import main; main()", "replay", "--fresh"]
    place = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, cwd=sample.root, stdout=subprocess.DEVNULL, env=place) as replay:
        test = int(pipe.read_text())
        host = int(note.read_text().split()[1])
        replay.send_signal(number)
        replay.wait()

    assert ends(host)
    assert ends(test)
    assert note.read_text().split()[2] == "shut"


@pytest.mark.parametrize("value", ['"keeper"', "3", '"a:b:c"'])
def test_a_service_is_named_by_module_and_context_manager(sample, value):
    sample.write("pyproject.toml", f"{PYPROJECT}\n[tool.lastbus.proof.services]\ntill = {value}\n")

    with pytest.raises(UsageError, match="module:context_manager"):
        Project.load(sample.root)


@pytest.mark.parametrize("value", ["0", '"3"', "true", "inf"])
def test_the_least_limit_is_a_number_of_seconds(sample, value):
    sample.write("pyproject.toml", PYPROJECT.replace("floor_seconds = 10", f"floor_seconds = {value}"))

    with pytest.raises(UsageError, match="floor_seconds must be a number of seconds above 0"):
        Project.load(sample.root)
